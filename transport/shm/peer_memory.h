// Access to the heaps (heap.h) of the other ranks of a host.
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

// All segments that one process has mapped. A segment is mapped on first use, and unmapped when
// another segment takes its place in the file, or addresses are needed. Thread-safe.
class PeerMemory {
 public:
  explicit PeerMemory(std::shared_ptr<const Fd> file) : file_(std::move(file)) {}

  // Maps a segment. Returns null if the address space has no room; then use read() instead.
  std::shared_ptr<const Mapping> map(const Extent& segment);
  // Maps part of a heap for writing. The mapping lives as long as the result; until then the owner
  // must not release the part. Null if the address space has no room.
  std::shared_ptr<std::byte> map_to_write(const Extent& part) const;
  // Copies from the file. Returns 0 or errno.
  int read(uint64_t offset, std::span<std::byte> destination) const;

 private:
  std::shared_ptr<const Mapping> try_to_map(const Extent& segment) const;

  const std::shared_ptr<const Fd> file_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Mapping>> mappings_;
};

}  // namespace tutti::shm
