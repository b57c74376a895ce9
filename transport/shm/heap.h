// Memory of one rank that the other ranks of its host can read in place.
//
// One sparse file in memory as large as the machine's memory, of which pages are handed out; what
// is not handed out takes no memory. Others map the whole file once, whatever comes and goes in it.
//
//   this rank    [ a a a | free | b b | c | free ...      allocate(): a range of pages
//                                   ▲                     adopt(): pages that the caller has
//                                   already
//   its memory   ... [ v v v v v v ] ...                  got are moved into it, addresses
//   unchanged
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/fd.h"

namespace tutti::shm {

class Heap {
 public:
  // Throws Error(system) when there is no room in the address space for it.
  Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  int fd() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

  // Any thread, all of these.
  // Zeroed, starts at a page. Null when the heap is full.
  std::byte* allocate(size_t bytes);
  void free(std::byte* data);
  // Moves the whole pages of this range into the heap: what is in them, and where they are, stays.
  // Nobody may use them meanwhile. Throws Error(invalid_argument) where they are not plain private
  // memory. Ranges must not overlap.
  void adopt(std::span<std::byte> range);
  // Moves them back.
  void release(std::span<std::byte> range);

  // Where in the heap it is, if all of it is.
  std::optional<uint64_t> find(const std::byte* data, size_t bytes) const;

 private:
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  std::optional<uint64_t> take(uint64_t bytes);
  void give_back(const Range& range);

  Fd memory_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;          // bytes by offset
  std::map<std::byte*, Range> allocated_;      // by address
  std::map<const std::byte*, Range> adopted_;  // by address
  std::atomic<size_t> adoptions_{0};           // adopted_.size(), to look at without the mutex
};

// Another rank's heap. To read; a write changes nothing but whose cache has it
// (ShmTransport::used).
class PeerHeap {
 public:
  explicit PeerHeap(const Fd& memory);
  PeerHeap(const PeerHeap&) = delete;
  PeerHeap& operator=(const PeerHeap&) = delete;
  ~PeerHeap();

  std::byte* at(uint64_t offset) const { return base_ + offset; }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tutti::shm
