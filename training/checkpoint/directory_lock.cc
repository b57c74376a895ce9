#include "training/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/host_name.h"
#include "base/text.h"
#include "training/checkpoint/files.h"

namespace tutti::training {
namespace {

// Who holds a lock, as its file says it: one line of words.
struct Holder {
  std::string host;
  pid_t pid = 0;
  std::string born;   // when the process started, in the kernel's own count since this boot
  std::string since;  // for people
  std::string run;
};

// The words behind the process's name, which may have spaces and brackets.
std::string birth_of(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream words(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  constexpr int kStartTime = 20;  // field 22 of all; the name is field 2
  for (int i = 0; i < kStartTime && words >> word; ++i) continue;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  boot >> id;
  return text.empty() ? "" : cat(word, '@', id);
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string to_text(const Holder& holder) {
  return cat(holder.host, ' ', holder.pid, ' ', holder.born, ' ', holder.since, ' ', holder.run,
             '\n');
}

Holder read_holder(int file) {
  std::array<char, 1024> text{};
  const ssize_t size = ::pread(file, text.data(), text.size() - 1, 0);
  std::istringstream words(std::string(text.data(), size > 0 ? static_cast<size_t>(size) : 0));
  Holder holder;
  words >> holder.host >> holder.pid >> holder.born >> holder.since >> holder.run;
  return holder;
}

Error is_held(const std::string& directory, const Holder& holder, const std::string& remedy) {
  const std::string who = holder.host.empty()
                              ? "another job"
                              : cat("process ", holder.pid, " on host ", holder.host, ", since ",
                                    holder.since, ", for run ", holder.run);
  return Error(
      ErrorCode::invalid_argument, cat("another job is working in ", directory, ": ", who),
      {.remedy = cat("give each job a directory of its own, or wait for that one's end", remedy)});
}

// Where nothing but the text can be asked.
bool may_be_alive(const Holder& holder) {
  if (holder.host.empty()) return false;
  return holder.host != host_name() || birth_of(holder.pid) == holder.born;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& run)
    : path_(cat(directory, '/', kLockFile)),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
  if (!file_) throw file_error("cannot write", path_, errno);
  int result = 0;
  do {
    result = ::flock(file_.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  const bool has_locks = result == 0 || errno == EWOULDBLOCK;
  const Holder holder = read_holder(file_.get());
  if (has_locks && result != 0) throw is_held(directory, holder, "");
  if (!has_locks && may_be_alive(holder)) {
    throw is_held(directory, holder,
                  cat("; where it is gone already, remove ", path_,
                      ": this file system has no locks that would tell"));
  }
  write(to_text({host_name(), ::getpid(), birth_of(::getpid()), now(), run}));
}

DirectoryLock::~DirectoryLock() {
  // The text of a job that ended by itself is no warning to anybody.
  [[maybe_unused]] const int result = ::ftruncate(file_.get(), 0);
  // A process that was forked meanwhile would keep the lock otherwise.
  ::flock(file_.get(), LOCK_UN);
}

void DirectoryLock::write(const std::string& text) const {
  const bool good =
      ::ftruncate(file_.get(), 0) == 0 &&
      ::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!good) throw file_error("cannot write", path_, errno);
}

}  // namespace tutti::training
