// Pairwise exchange reduce-scatter: every rank sends each other rank the block for it, and sums the
// contributions to its own block in order of distance.
//
//     rank r sends to         r + 1, r + 2, ... r - 1      the destination's block
//     and receives from       r - 1, r - 2, ... r + 1      contributions to its own block
//
// Like all-pairs (all_pairs.cc), it sends the minimum volume, and no message depends on another
// one. All ranks behave alike: a sum begins with the rank's own contribution, not with the
// contribution of rank 0, and needs a single chunk of scratch.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005, section 4.3.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_pairwise(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.fan_out = p - 1;
  if (p > 2) program.scratch_chunks = p;  // one per size class; this rank uses only its own
  for (const int32_t peer : others(shape)) program.steps.push_back(send({peer}, {input(peer)}));
  const ChunkRange sum = scratch(shape.rank);
  ChunkRange so_far = input(shape.rank);
  for (int32_t distance = 1; distance < p; ++distance) {
    const int32_t peer = (shape.rank + p - distance) % p;
    const ChunkRange next = distance == p - 1 ? output(0) : sum;
    program.steps.push_back(recv_reduce_right(peer, {so_far}, {next}));
    so_far = next;
  }
  return program;
}

}  // namespace

Algorithm reduce_scatter_pairwise() {
  return {.collective = Collective::reduce_scatter,
          .name = "pairwise",
          .source = "pairwise exchange, Thakur, Rabenseifner, Gropp, IJHPCA 2005",
          .grade = Grade::same_bits,
          .emit = emit_pairwise};
}

}  // namespace tutti::algorithms
