// Lock of a directory, in which one job at a time may work.
#pragma once

#include <string>

#include "base/fd.h"
#include "training/checkpoint/writer.h"

namespace tutti::training {

inline constexpr const char* kLockFile = "lock";

// Held until destruction. The system releases the lock of a process that dies, so a killed job is
// no obstacle. The file `lock` names the holder: process, host, start time, run and writer. On a
// file system without locks only the file's text counts: a dead process of this host is no obstacle
// then, but one of another host is.
//
// A holder that `history` contains is no obstacle either: its job has continued without it, and the
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

  // Writes this process as the holder into the file. A previous holder that was bypassed loses the
  // lock, so the directory's fence must name this writer already.
  void claim();

 private:
  void replace();
  void write(const std::string& text) const;

  std::string path_;
  std::string text_;  // of this holder
  Fd file_;
  bool has_it_ = true;  // false: a previous holder was bypassed
  bool is_claimed_ = false;
};

}  // namespace tutti::training
