// Finds resources that a process still holds and that must not remain after a communicator is
// destroyed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "base/deadline.h"

namespace tutti::testing {

inline size_t entries_of(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

inline size_t open_descriptors() { return entries_of("/proc/self/fd"); }
inline size_t running_threads() { return entries_of("/proc/self/task"); }

// Returns the number of threads, after waiting until it is at most `expected`: a joined thread may
// stay in /proc for a moment, because the kernel wakes the joiner first.
inline size_t threads_at_rest(size_t expected) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  size_t count = 0;
  while ((count = running_threads()) > expected && !deadline.passed()) std::this_thread::yield();
  return count;
}

// Returns the number of mappings of the library's shared memory.
inline size_t shared_mappings() {
  std::ifstream file("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("memfd:tutti") != line.npos;
  return count;
}

// Returns the files in /dev/shm with Tutti's name. Any user may create files there; the library
// creates none.
inline std::set<std::string> files_in_dev_shm() {
  std::set<std::string> names;
  std::error_code none;  // ignored, because the folder might not exist
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
    const std::string name = entry.path().filename();
    if (name.find("tutti") != name.npos) names.insert(name);
  }
  return names;
}

}  // namespace tutti::testing
