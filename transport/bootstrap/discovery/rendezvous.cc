#include "transport/bootstrap/discovery/rendezvous.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/handshake.h"

namespace tutti::bootstrap {

namespace {
constexpr const char* kMark = "tutti-rendezvous-1";
}

void FileRendezvous::set(const std::string& key, const std::string& value) {
  const std::string path = file_of(key);
  const std::string draft = cat(path, ".", to_hex(random_nonce()), ".tmp");
  const std::string text = cat(kMark, " ", value, "\n");
  bool created = false;
  const auto fail = [&](const char* what) {
    const int error = errno;
    if (created) ::unlink(draft.c_str());
    throw Error(
        ErrorCode::bootstrap,
        cat(what, " the rendezvous file ", path, ": ", std::strerror(error), " (errno ", error,
            ")"),
        {.remedy = "TUTTI_RENDEZVOUS=file:/PATH needs a directory that rank 0 can write and "
                   "all ranks can read"});
  };
  Fd file(::open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  created = static_cast<bool>(file);
  if (!created) fail("cannot create");
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    fail("cannot write");
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) fail("cannot rename");
}

void FileRendezvous::remove(const std::string& key) { ::unlink(file_of(key).c_str()); }

std::optional<std::string> FileRendezvous::get(const std::string& key) {
  std::ifstream file(file_of(key));
  std::string mark;
  std::string value;
  if (!(file >> mark >> std::ws) || mark != kMark || !std::getline(file, value)) return {};
  return value;
}

Published::Published(std::shared_ptr<Rendezvous> rendezvous, std::string key,
                     const std::string& value)
    : rendezvous_(std::move(rendezvous)), key_(std::move(key)) {
  rendezvous_->set(key_, value);
}

Published::~Published() {
  try {
    rendezvous_->remove(key_);
  } catch (const std::exception& error) {  // a stale entry is harmless
    log(LogLevel::warning, error.what());
  }
}

}  // namespace tutti::bootstrap
