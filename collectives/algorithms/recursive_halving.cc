// Recursive halving reduce-scatter: log2 p exchanges, each of half the blocks that are left.
//
//   p = 4, at rank 0:    0 1 2 3      with rank 1: sums of the blocks 0 2, gives away 1 3
//                        0   2        with rank 2: sum of block 0, gives away 2
//                        0
//
// The nearest partner comes first, so that aligned pairs, fours, eights are summed, the lower ranks
// on the left: the canonical tree. A rank keeps the blocks of the ranks that agree with it in the
// bits that have been exchanged. Partial sums travel unrounded.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005; with distances doubling in place of halving, for the order.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// The blocks of ranks that agree with `rank` below bit `distance`.
RangeList agreeing(Space space, int32_t rank, int32_t distance, int32_t ranks) {
  RangeList blocks;
  for (int32_t b = rank % distance; b < ranks; b += distance) blocks.push_back({space, b, 1});
  return blocks;
}

Program emit(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p,
                  .output_chunks = 1,
                  .scratch_chunks = p > 2 ? p : 0,
                  .chunks_per_message = std::max(1, p / 2),
                  .fan_out = std::max(1, doublings(p))};
  if (p == 1) program.steps = {copy({input(0)}, {output(0)})};
  Space space = Space::input;
  for (int32_t distance = 1; distance < p; distance *= 2) {
    const int32_t partner = shape.rank ^ distance;
    const bool is_last = 2 * distance == p;
    const Wire wire = space == Space::scratch ? Wire::accumulator : Wire::element;
    const RangeList mine = agreeing(space, shape.rank, 2 * distance, p);
    const RangeList sums =
        is_last ? RangeList{output(0)} : agreeing(Space::scratch, shape.rank, 2 * distance, p);
    program.steps.push_back(send({partner}, agreeing(space, partner, 2 * distance, p), wire));
    program.steps.push_back(shape.rank < partner ? recv_reduce_right(partner, mine, sums, wire)
                                                 : recv_reduce_left(partner, mine, sums, wire));
    space = Space::scratch;
  }
  return program;
}

}  // namespace

Algorithm reduce_scatter_recursive_halving() {
  return {.collective = Collective::reduce_scatter,
          .name = "recursive_halving",
          .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
          .grade = Grade::canonical,
          .emit = emit,
          .supports = powers_of_two_only};
}

}  // namespace tutti::algorithms
