// Bruck all-gather: in round k everyone sends what it has, up to 2^k blocks, 2^k ranks down.
//
//   p = 5, blocks at rank 0:   0            from 1:  0 1            from 2:  0 1 2 3
//                                          from 4:  0 1 2 3 4 (one block is missing)
//
// ceil(log2 p) rounds for every p, and p - 1 blocks received: the fewest of both. Blocks go
// straight to their places in the output, so there is no rotation at the end.
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
  // Blocks after the last round that doubles their number.
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
