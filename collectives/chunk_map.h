// Where each chunk of a program lies in the buffers of one call, in elements.
//
// A block of n elements is cut into C chunks of equal size, rounded up so that chunks start at
// cache lines (of a buffer that does); the last ones may be shorter, or empty.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives/plan.h"

namespace tutti {

class ChunkMap {
 public:
  ChunkMap() = default;
  // `count`: elements of one block (all_reduce: the whole buffer).
  ChunkMap(const Plan& plan, uint64_t count, uint64_t element_bytes)
      : count_(count), per_block_(std::max(1, chunks_per_block(plan.collective, plan.program))) {
    const uint64_t line = std::max<uint64_t>(1, 64 / element_bytes);
    const uint64_t even = (count + per_block_ - 1) / per_block_;
    chunk_ = (even + line - 1) / line * line;
  }

  uint64_t largest() const { return std::min(chunk_, count_); }

  // Scratch chunks have a length but no place in a buffer of the caller's.
  uint64_t offset(int32_t chunk) const {
    const uint64_t block = static_cast<uint64_t>(chunk) / per_block_;
    return block * count_ + std::min(count_, static_cast<uint64_t>(chunk) % per_block_ * chunk_);
  }
  uint64_t length(int32_t chunk) const {
    const uint64_t start = static_cast<uint64_t>(chunk) % per_block_ * chunk_;
    return start >= count_ ? 0 : std::min(chunk_, count_ - start);
  }

 private:
  uint64_t count_ = 0;
  uint64_t per_block_ = 1;
  uint64_t chunk_ = 0;
};

}  // namespace tutti
