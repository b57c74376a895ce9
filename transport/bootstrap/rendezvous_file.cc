#include "transport/bootstrap/rendezvous_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/handshake.h"

namespace tutti::bootstrap {

namespace {
constexpr const char* kMark = "tutti-rendezvous-1";
}

RendezvousFile::RendezvousFile(std::string path, const SocketAddress& address)
    : path_(std::move(path)) {
  const std::string draft = cat(path_, ".", to_hex(random_nonce()), ".tmp");
  const std::string text = cat(kMark, " ", address.host(), " ", address.port(), "\n");
  bool created = false;
  const auto fail = [&](const char* what) {
    const int error = errno;
    if (created) ::unlink(draft.c_str());
    throw Error(ErrorCode::bootstrap,
                cat(what, " the rendezvous file ", path_, ": ", std::strerror(error), " (errno ",
                    error, ")"),
                {.remedy = "TUTTI_RENDEZVOUS=file:/PATH needs a folder that rank 0 can write and "
                           "all ranks can read"});
  };
  Fd file(::open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  created = static_cast<bool>(file);
  if (!created) fail("cannot create");
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    fail("cannot write");
  }
  if (std::rename(draft.c_str(), path_.c_str()) != 0) fail("cannot rename");
}

RendezvousFile::~RendezvousFile() { ::unlink(path_.c_str()); }

std::optional<SocketAddress> read_rendezvous(const std::string& path) {
  std::ifstream file(path);
  std::string mark;
  std::string host;
  uint16_t port = 0;
  if (!(file >> mark >> host >> port) || mark != kMark) return std::nullopt;
  return resolve(host, port).front();
}

}  // namespace tutti::bootstrap
