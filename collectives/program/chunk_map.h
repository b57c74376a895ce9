// Offset and length of each chunk of a program in the buffers of one call, in elements.
//
// A block of n elements is divided into C chunks of equal size. The size is rounded up to whole
// cache lines, so the last chunks may be shorter or empty. Blocks of the v-variants have their own
// lengths and displacements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "collectives/program/plan.h"
#include "collectives/request.h"

namespace tutti {

// Extent of a chunk, in elements. Scratch chunks have a length but no location in the caller's
// buffers.
struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;
};

class ChunkMap {
 public:
  ChunkMap() = default;
  // Computes the chunks. `count`: elements of each block, or of the buffer if there are no blocks.
  ChunkMap(const Plan& plan, uint64_t count, uint64_t element_bytes)
      : ChunkMap(plan, count, element_bytes, {}) {}

  // Computes the chunks of v-variants. `input` and `output` are the blocks of the buffers that have
  // blocks; `own` is the length of the buffer that is a single block.
  ChunkMap(const Plan& plan, const Blocks& input, const Blocks& output, uint64_t own,
           uint64_t element_bytes)
      : ChunkMap(plan, own, element_bytes,
                 {input.empty() ? nullptr : &input, output.empty() ? nullptr : &output,
                  // The blocks that determine the lengths of scratch chunks.
                  !output.empty()  ? &output
                  : !input.empty() ? &input
                                   : nullptr}) {}

  const Extent& at(Space space, int32_t chunk) const {
    return extents_[static_cast<size_t>(space)][static_cast<size_t>(chunk)];
  }
  // Returns the number of elements of the largest chunk of this rank's buffers.
  uint64_t largest() const { return largest_; }

 private:
  using BlocksOfSpaces = std::array<const Blocks*, 3>;

  ChunkMap(const Plan& plan, uint64_t count, uint64_t element_bytes, const BlocksOfSpaces& blocks)
      : per_block_(static_cast<uint64_t>(
            std::max(1, chunks_per_block(plan.collective, plan.program, plan.shape.ranks)))),
        line_(std::max<uint64_t>(1, 64 / element_bytes)) {
    const Program& program = plan.program;
    const std::array<int32_t, 3> chunks = {program.input_chunks, program.output_chunks,
                                           program.scratch_chunks};
    uint64_t longest_block = count;
    for (size_t space = 0; space < chunks.size(); ++space) {
      extents_[space].reserve(static_cast<size_t>(chunks[space]));
      for (uint64_t i = 0; i < static_cast<uint64_t>(chunks[space]); ++i) {
        extents_[space].push_back(blocks[space] == nullptr ? even(i, count)
                                                           : uneven(i, *blocks[space]));
      }
      if (blocks[space] != nullptr) {
        longest_block = std::max(longest_block, std::ranges::max(blocks[space]->counts));
      }
    }
    largest_ = std::min(chunk_of(longest_block), longest_block);
  }

  Extent even(uint64_t chunk, uint64_t count) const {
    return within(chunk / per_block_ * count, count, chunk % per_block_);
  }
  Extent uneven(uint64_t chunk, const Blocks& blocks) const {
    const uint64_t index = chunk / per_block_ % blocks.counts.size();
    return within(blocks.displacements[index], blocks.counts[index], chunk % per_block_);
  }
  // Returns the n-th chunk of the block that starts at `start` and has `length` elements.
  Extent within(uint64_t start, uint64_t length, uint64_t n) const {
    const uint64_t chunk = chunk_of(length);
    const uint64_t first = std::min(length, n * chunk);
    return {start + first, std::min(chunk, length - first)};
  }
  uint64_t chunk_of(uint64_t block) const {
    const uint64_t even = (block + per_block_ - 1) / per_block_;
    return (even + line_ - 1) / line_ * line_;
  }

  uint64_t per_block_ = 1;
  uint64_t line_ = 1;
  uint64_t largest_ = 0;
  std::array<std::vector<Extent>, 3> extents_;  // by space
};

}  // namespace tutti
