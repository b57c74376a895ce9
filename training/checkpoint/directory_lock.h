// Lock of a directory, in which one job at a time may work.
#pragma once

#include <string>

#include "base/fd.h"
#include "training/checkpoint/writer.h"

namespace tutti::training {

inline constexpr const char* kLockFile = "lock";

// Lock on a directory, held until destruction. The operating system releases the lock of a process
// that dies, so a killed job does not block the next one. The file `lock` names the holder:
// process, host, start time, run and writer. On a file system without locks, only the text of this
// file counts: a dead process of this host does not block, but any process of another host does.
//
// A holder that is in `history` does not block either: its job has continued without it, and the
// fence (fence.h) keeps it from writing.
class DirectoryLock {
 public:
  // Throws Error(invalid_argument), naming the holder, if another process holds the lock, and
  // Error(system) if the directory cannot be written.
  DirectoryLock(const std::string& directory, const std::string& run,
                const WriterHistory& history = {});
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  // Writes this process as the holder into the file. If the constructor bypassed another holder,
  // that process loses the lock, so the directory's fence must already name this writer.
  void claim();

 private:
  void replace();
  void write(const std::string& text) const;

  std::string path_;
  std::string text_;  // content of the file `lock` that names this process
  Fd file_;
  bool has_it_ = true;  // false if another holder was bypassed
  bool is_claimed_ = false;
};

}  // namespace tutti::training
