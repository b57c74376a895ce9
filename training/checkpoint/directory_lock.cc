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
#include <utility>

#include "base/error.h"
#include "base/host_name.h"
#include "base/text.h"
#include "training/checkpoint/files.h"

namespace tutti::training {
namespace {

// The holder of a lock, as the file describes it: one line of words.
struct Holder {
  std::string host;
  pid_t pid = 0;
  std::string born;   // start time of the process since boot, and ID of that boot
  std::string since;  // start time for messages
  std::string run;
  Writer writer;
};

// Returns the start time of a process, with the ID of the boot ("123456@ID"), or "" if there is no
// such process. Skips the process's name, which may contain blanks and brackets.
std::string birth_of(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream words(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  constexpr int kStartTime = 20;  // index of field 22 after the name, which is field 2
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
  const Writer& writer = holder.writer;
  return cat(holder.host, ' ', holder.pid, ' ', holder.born, ' ', holder.since, ' ', holder.run,
             ' ', writer.start, ' ', writer.epoch, ' ', writer.digest, '\n');
}

Holder read_holder(int file) {
  std::array<char, 1024> text{};
  const ssize_t size = ::pread(file, text.data(), text.size() - 1, 0);
  std::istringstream words(std::string(text.data(), size > 0 ? static_cast<size_t>(size) : 0));
  Holder holder;
  words >> holder.host >> holder.pid >> holder.born >> holder.since >> holder.run;
  words >> holder.writer.start >> holder.writer.epoch >> holder.writer.digest;
  return holder;
}

Error is_held(const std::string& directory, const Holder& holder, const std::string& remedy) {
  const std::string who = holder.host.empty()
                              ? "another job"
                              : cat("process ", holder.pid, " on host ", holder.host, ", since ",
                                    holder.since, ", for run ", holder.run);
  return Error(ErrorCode::invalid_argument, cat("another job uses ", directory, ": ", who),
               {.remedy = cat("use a separate directory for each job, or wait until that job ends",
                              remedy)});
}

Fd open_lock(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file) throw file_error("cannot write", path, errno);
  return file;
}

int try_lock(int file) {
  int result = 0;
  do {
    result = ::flock(file, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result;
}

// Returns true if the holder may be alive. Used on file systems without locks, where only the text
// of the lock file shows whether a job works in the directory.
bool may_be_alive(const Holder& holder) {
  if (holder.host.empty()) return false;
  return holder.host != host_name() || birth_of(holder.pid) == holder.born;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& run,
                             const WriterHistory& history)
    : path_(cat(directory, '/', kLockFile)), file_(open_lock(path_)) {
  const Writer own = history.writers.empty() ? Writer{.start = "-"} : history.writers.back();
  text_ = to_text({host_name(), ::getpid(), birth_of(::getpid()), now(), run, own});
  const int result = try_lock(file_.get());
  const bool has_locks = result == 0 || errno == EWOULDBLOCK;
  const Holder holder = read_holder(file_.get());
  const bool is_passed_over = history.has(holder.writer);
  has_it_ = result == 0 || !has_locks;
  if (is_passed_over) return;
  if (!has_it_) throw is_held(directory, holder, "");
  if (!has_locks && may_be_alive(holder)) {
    throw is_held(directory, holder,
                  cat("; if it has ended already, remove ", path_,
                      " (this file system has no locks that show it)"));
  }
}

void DirectoryLock::claim() {
  if (!has_it_) replace();
  write(text_);
  is_claimed_ = true;
}

// Replaces the file by a new one, so that a lock on the old file has no effect.
void DirectoryLock::replace() {
  const std::string fresh = path_ + ".tmp";
  ::unlink(fresh.c_str());
  Fd file = open_lock(fresh);
  try_lock(file.get());
  if (::rename(fresh.c_str(), path_.c_str()) != 0) throw file_error("cannot replace", path_, errno);
  file_ = std::move(file);
  has_it_ = true;
}

DirectoryLock::~DirectoryLock() {
  // Clear the text: a job that ended normally needs no warning.
  [[maybe_unused]] const int result = is_claimed_ ? ::ftruncate(file_.get(), 0) : 0;
  // Unlock explicitly: a forked child would otherwise keep the lock.
  ::flock(file_.get(), LOCK_UN);
}

void DirectoryLock::write(const std::string& text) const {
  const bool good =
      ::ftruncate(file_.get(), 0) == 0 &&
      ::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!good) throw file_error("cannot write", path_, errno);
}

}  // namespace tutti::training
