// Rank 0's part of a save: the folder, its one moment of getting its name, and what goes after it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace tutti::training {

// No two runs may save into a directory at a time: a lock, which the system takes back from a
// process that dies, keeps the second one out. Where the file system has no locks, nothing does.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  bool held() const { return held_; }

 private:
  Fd directory_;
  bool held_ = false;
};

class Publication {
 public:
  // Makes the directory and, in it, the folder that files are to be written to. Removes the folders
  // of runs that died.
  Publication(const std::string& directory, int64_t step);
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  ~Publication();  // removes the folder, unless it was published

  const std::string& folder() const { return folder_; }
  // Adds the manifest and gives the folder its name. All other files are on the disk.
  void publish(std::string_view manifest, const std::function<void(std::string_view)>& at_phase);
  // Removes the steps before this one, all but `keep` - 1 of them. What cannot be removed is a
  // warning.
  void prune(int keep) const;

 private:
  void give_name() const;
  void remove_step(int64_t step) const;

  std::string directory_;
  int64_t step_;
  DirectoryLock lock_;
  std::string folder_;
  bool published_ = false;
};

}  // namespace tutti::training
