// What the other ranks of a host have in their heaps (heap.h), to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "transport/shm/extents.h"

namespace tutti::shm {

// A segment in this rank's address space.
class Mapping {
 public:
  Mapping(const std::byte* base, const Extent& extent) : base_(base), extent_(extent) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  const Extent& extent() const { return extent_; }
  const std::byte* at(uint64_t offset) const { return base_ + (offset - extent_.offset); }

 private:
  const std::byte* base_;
  Extent extent_;
};

// All of them, of one process. Segments are mapped when they are first asked for, and stay until
// another one is where they were, or addresses are needed. Any thread.
class PeerMemory {
 public:
  explicit PeerMemory(std::shared_ptr<const Fd> file) : file_(std::move(file)) {}

  // Null where the address space has no room for it: then read() does it.
  std::shared_ptr<const Mapping> map(const Extent& segment);
  // Part of a heap, also to write, as long as the result lives: the owner must not take it back
  // meanwhile. Null where the address space has no room for it.
  std::shared_ptr<std::byte> map_to_write(const Extent& part) const;
  // A copy. 0, or why there is none (errno).
  int read(uint64_t offset, std::span<std::byte> destination) const;

 private:
  std::shared_ptr<const Mapping> try_to_map(const Extent& segment) const;

  const std::shared_ptr<const Fd> file_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Mapping>> mappings_;
};

}  // namespace tutti::shm
