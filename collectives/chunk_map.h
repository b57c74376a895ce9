// Where each chunk of a program lies in the buffers of one call, and how long it is, in elements.
//
// A block of n elements is cut into C chunks of equal size, rounded up so that chunks start at
// cache lines (of a buffer that does); the last ones may be shorter, or empty. Blocks of the
// v-variants have lengths and places of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "collectives/plan.h"
#include "collectives/request.h"

namespace tutti {

class ChunkMap {
 public:
  ChunkMap() = default;
  // `count`: elements of one block (all_reduce: the whole buffer). All blocks are of this length.
  ChunkMap(const Plan& plan, uint64_t count, uint64_t element_bytes)
      : count_(count),
        per_block_(std::max(1, chunks_per_block(plan.collective, plan.program, plan.shape.ranks))),
        line_(std::max<uint64_t>(1, 64 / element_bytes)),
        chunk_(chunk_of(count)) {}

  // The v-variants: the blocks of the buffers that have them (they must outlive the map), and the
  // length of the buffer that is one block.
  ChunkMap(const Plan& plan, const Blocks& input, const Blocks& output, uint64_t own,
           uint64_t element_bytes)
      : ChunkMap(plan, own, element_bytes) {
    blocks_ = {input.empty() ? nullptr : &input, output.empty() ? nullptr : &output};
    blocks_[2] = output.empty() ? blocks_[0] : blocks_[1];  // as scratch has them
    uneven_ = true;
  }

  // Of the largest chunk that this rank knows.
  uint64_t largest() const {
    uint64_t block = count_;
    for (const Blocks* blocks : blocks_) {
      if (blocks != nullptr) block = std::max(block, std::ranges::max(blocks->counts));
    }
    return std::min(chunk_of(block), block);
  }

  // Scratch chunks have a length but no place in a buffer of the caller's.
  uint64_t offset(Space space, int32_t chunk) const {
    const Place place = place_of(space, chunk);
    return place.block_start + std::min(place.block, place.within * place.chunk);
  }
  uint64_t length(Space space, int32_t chunk) const {
    const Place place = place_of(space, chunk);
    const uint64_t start = place.within * place.chunk;
    return start >= place.block ? 0 : std::min(place.chunk, place.block - start);
  }

 private:
  struct Place {
    uint64_t block_start;
    uint64_t block;   // its length
    uint64_t chunk;   // length of its chunks
    uint64_t within;  // the how-manieth of them
  };

  Place place_of(Space space, int32_t number) const {
    const auto chunk = static_cast<uint64_t>(number);
    const uint64_t block = chunk / per_block_;
    const uint64_t within = chunk % per_block_;
    if (!uneven_) return {block * count_, count_, chunk_, within};
    const Blocks* blocks = blocks_[static_cast<size_t>(space)];
    if (blocks == nullptr) return {0, count_, chunk_, within};
    const uint64_t index = block % blocks->counts.size();
    const uint64_t length = blocks->counts[index];
    return {blocks->displacements[index], length, chunk_of(length), within};
  }

  uint64_t chunk_of(uint64_t block) const {
    const uint64_t even = (block + per_block_ - 1) / per_block_;
    return (even + line_ - 1) / line_ * line_;
  }

  uint64_t count_ = 0;
  uint64_t per_block_ = 1;
  uint64_t line_ = 1;
  uint64_t chunk_ = 0;
  bool uneven_ = false;
  std::array<const Blocks*, 3> blocks_ = {};  // by space
};

}  // namespace tutti
