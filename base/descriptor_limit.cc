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

// That are open; `most` where they cannot be counted, for want of a descriptor for instance.
size_t count_open(size_t most) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return most;
  size_t entries = 0;
  while (::readdir(folder.get()) != nullptr) ++entries;
  return entries - std::min<size_t>(entries, 3);  // ".", ".." and the folder itself
}

}  // namespace

bool reserve_descriptors(size_t more) {
  static std::mutex mutex;  // else one thread could take back what another one has got
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
    return system_error(what, error,
                        {.cause = "all processes of this host together have too many files open",
                         .remedy = "raise fs.file-max (sysctl)"});
  }
  return system_error(what, error,
                      {.cause = cat("this process has as many files open as it may have: ",
                                    limit.rlim_cur, " (hard limit ", limit.rlim_max, ")"),
                       .remedy = "raise the limit of open files (ulimit -n) before the start"});
}

}  // namespace tutti
