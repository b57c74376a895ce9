// One job at a time works in a directory.
#pragma once

#include <string>

#include "base/fd.h"

namespace tutti::training {

inline constexpr const char* kLockFile = "lock";

// Held until it is destroyed. The system takes it back from a process that dies, so a job that was
// killed is no obstacle. The file `lock` says who holds it: a process of which host, since when,
// for which run. Where the file system has no locks, what the file says is all there is: then a
// process of this host that is gone is no obstacle, one of another host is.
class DirectoryLock {
 public:
  // Throws Error(invalid_argument) that names the holder where somebody has it, and Error(system)
  // where the directory cannot be written.
  DirectoryLock(const std::string& directory, const std::string& run);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

 private:
  void write(const std::string& text) const;

  std::string path_;
  Fd file_;
};

}  // namespace tutti::training
