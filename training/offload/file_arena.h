// Bump allocator in files of a pager; all its memory is released at once.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "training/offload/pager.h"

namespace tutti::training {

class FileArena {
 public:
  explicit FileArena(Pager& pager) : pager_(pager) {}

  // Returns uninitialised memory, aligned to a page. Throws as FileMemory does.
  std::byte* take(size_t bytes);
  // Makes all memory available again for take().
  void release();
  // Returns the largest number of bytes that were in use at once.
  size_t high_water() const { return high_water_; }

 private:
  struct Chunk {
    std::shared_ptr<std::byte[]> memory;
    size_t size = 0;
  };

  Pager& pager_;
  std::vector<Chunk> chunks_;
  size_t current_ = 0;  // index of the chunk that is being filled
  size_t in_chunk_ = 0;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

}  // namespace tutti::training
