// Bruck all-gather: in round k every rank sends its first (up to) 2^k blocks to the rank 2^k below.
//
//   p = 5, rank 0:    round 0: from 1 = 0 + 2^0:   block 1       has 0 1
//                     round 1: from 2 = 0 + 2^1:   blocks 2 3    has 0 1 2 3
//                     round 2: from 4 = 0 + 2^2:   block 4       has 0 1 2 3 4 (only 4 was missing)
//
// It takes ceil(log2 p) rounds for every p, and each rank receives p - 1 blocks: both are minimal.
// Blocks are received at their final places in the output, so no rotation is needed at the end.
//
// J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient Algorithms for All-to-All
// Communications in Multiport Message-Passing Systems. TPDS 8(11), 1997.

#include <algorithm>
#include <bit>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_bruck(const Shape& shape) {
  const int32_t p = shape.ranks;
  // Largest power of two that is at most p. A rank has this number of blocks after all rounds that
  // double the number.
  const auto whole = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(p)));
  Program program{.input_chunks = 1,
                  .output_chunks = p,
                  .chunks_per_message = std::max({1, whole / 2, p - whole}),
                  .fan_out = std::max(1, doublings(p))};
  program.steps.push_back(copy({input(0)}, {output(shape.rank)}));
  for (int32_t have = 1; have < p; have *= 2) {
    const int32_t count = std::min(have, p - have);
    program.steps.push_back(
        send({(shape.rank + p - have) % p}, around(Space::output, shape.rank, count, p)));
    program.steps.push_back(
        recv((shape.rank + have) % p, around(Space::output, shape.rank + have, count, p)));
  }
  return program;
}

}  // namespace

Algorithm all_gather_bruck() {
  return {.collective = Collective::all_gather,
          .name = "bruck",
          .source = "Bruck, Ho, Kipnis, Upfal, Weathersby, TPDS 1997",
          .grade = Grade::canonical,
          .emit = emit_bruck};
}

}  // namespace tutti::algorithms
