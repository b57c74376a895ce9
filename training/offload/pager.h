// Loads pages of a rank's files (file_memory.h) before they are used and writes them back
// afterwards, in its own thread.
//
//   caller    use 0 | use 1          | use 2          | use 3
//   thread    ...   | write 0, load 3| write 1, load 4| ...
//
// Callers announce the order of use by fetch() and evict(). Correctness does not depend on these
// calls: touching a page that is not in memory reads it.
//
// Rajbhandari et al.: ZeRO-Infinity, SC 2021.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "training/offload/file_memory.h"

namespace tutti::training {

struct PageRange {
  std::span<const std::byte> bytes;
  bool writes = false;  // true: the caller will change the range
};

class Pager {
 public:
  // Sequence number of a request. Requests are served in order.
  using Ticket = uint64_t;

  explicit Pager(std::string directory);
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Returns zeroed memory in a new file, which lives as long as both the pointer and the pager.
  // Throws as FileMemory does.
  std::shared_ptr<std::byte[]> allocate(size_t bytes);
  // Returns true if the address is in one of the pager's files.
  bool holds(const void* address) const { return file_of(address) != nullptr; }
  size_t bytes() const { return bytes_; }  // total size of all files

  // Starts to load the ranges; wait() with the returned ticket blocks until they are loaded.
  // fetch(), start_writing() and evict() are thread-safe and do not wait for the disk. They ignore
  // ranges that are in none of the pager's files.
  Ticket fetch(std::span<const PageRange> ranges);
  // Starts to write the ranges' dirty pages.
  void start_writing(std::span<const PageRange> ranges);
  // Starts to write the ranges' dirty pages and then to release the ranges' memory
  // (FileMemory::evict).
  Ticket evict(std::span<const PageRange> ranges);
  // Copies `bytes` to address `to` in one of the pager's files (FileMemory::store).
  void store(std::span<const std::byte> bytes, std::byte* to);
  // Blocks until request `ticket` is done. Throws the error of the first request that failed.
  void wait(Ticket ticket);

 private:
  enum class Kind { load, write, evict };
  struct Task {
    Kind kind;
    std::shared_ptr<FileMemory> file;
    PageRange range;
  };

  std::shared_ptr<FileMemory> file_of(const void* address) const;
  Ticket add(Kind kind, std::span<const PageRange> ranges);
  void work();
  static void carry_out(const Task& task);

  const std::string directory_;
  size_t bytes_ = 0;
  mutable std::mutex mutex_;
  // key: address of a file's first byte
  std::map<const std::byte*, std::shared_ptr<FileMemory>> files_;
  std::condition_variable asked_;
  std::condition_variable done_;
  std::deque<Task> tasks_;
  Ticket last_asked_ = 0;
  Ticket last_done_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tutti::training
