// One job at a time works in a directory.
#pragma once

#include <string>

#include "base/fd.h"
#include "training/checkpoint/writer.h"

namespace tutti::training {

inline constexpr const char* kLockFile = "lock";

// Held until it is destroyed. The system takes it back from a process that dies, so a job that was
// killed is no obstacle. The file `lock` says who holds it: a process of which host, since when,
// for which run, as which writer. Where the file system has no locks, what the file says is all
// there is: then a process of this host that is gone is no obstacle, one of another host is.
//
// A holder that `history` has is no obstacle either: its job has gone on without it, and the fence
// (fence.h) keeps it from writing.
class DirectoryLock {
 public:
  // Throws Error(invalid_argument) that names the holder where somebody else has it, and
  // Error(system) where the directory cannot be written.
  DirectoryLock(const std::string& directory, const std::string& run,
                const WriterHistory& history = {});
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  // Says in the file that this process holds it. A holder that was passed over loses it, so the
  // directory must be this writer's by now.
  void claim();

 private:
  void replace();
  void write(const std::string& text) const;

  std::string path_;
  std::string text_;  // of this holder
  Fd file_;
  bool has_it_ = true;  // else a holder that was passed over
  bool is_claimed_ = false;
};

}  // namespace tutti::training
