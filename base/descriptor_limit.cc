#include "base/descriptor_limit.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>

#include "base/text.h"

namespace tutti {

namespace {

// Returns the number of open descriptors; `most` if they cannot be counted, for example for lack of
// a descriptor.
size_t count_open(size_t most) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return most;
  size_t entries = 0;
  while (::readdir(folder.get()) != nullptr) ++entries;
  return entries - std::min<size_t>(entries, 3);  // ".", ".." and the directory's own descriptor
}

}  // namespace

bool reserve_descriptors(size_t more) {
  static std::mutex mutex;  // prevents one thread from undoing another's raise
  const std::lock_guard lock(mutex);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t wanted = count_open(limit.rlim_cur) + more;
  if (limit.rlim_cur >= wanted) return true;
  const bool enough = wanted <= limit.rlim_max;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && enough;
}

bool is_descriptor_shortage(int error) { return error == EMFILE || error == ENFILE; }

Error descriptor_shortage(std::string_view what, int error) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (error == ENFILE) {
    return system_error(
        what, error,
        {.cause = "the processes of this host have reached the system's limit of open files",
         .remedy = "raise fs.file-max (sysctl)"});
  }
  return system_error(
      what, error,
      {.cause = cat("this process has reached its limit of open files: ", limit.rlim_cur,
                    " (hard limit ", limit.rlim_max, ")"),
       .remedy = "raise the limit of open files (ulimit -n) before starting the job"});
}

}  // namespace tutti
