// Two-shot all-reduce: rank r receives piece r of every input, reduces it, and sends the sum to
// all.
//
//        piece    0 1 2 3                            0 1 2 3
//        rank 0   ■ → → →     every rank sends       ■           rank r has the sum of piece r
//             1   ← ■ → →     piece r to rank r        ■         and sends it to all
//             2   ← ← ■ →                                ■
//             3   ← ← ← ■                                  ■
//
// It takes two rounds, and every rank sends 2(p-1)/p of the buffer, the minimum volume. Only inputs
// and complete sums travel, both as elements, so 16-bit floats travel in 16 bits and are still
// rounded only once, in the canonical order.
//
// All-pairs two-phase all-reduce: A. Shah et al.: MSCCL++, 2025. Direct exchange (pairwise
// reduce-scatter): R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_two_shot(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p, .output_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = p * slots_to_reduce(p);
  program.fan_out = p - 1;
  const std::vector<int32_t> peers = others(shape);
  for (const int32_t peer : peers) program.steps.push_back(send({peer}, {input(peer)}));
  const ChunkRange mine = input(shape.rank);
  receive_and_reduce_canonically(
      p,
      [&](int32_t rank) {
        return rank == shape.rank ? Contribution{.here = mine} : Contribution{.peer = rank};
      },
      [&](int32_t slot) { return scratch(slot * p + shape.rank); }, output(shape.rank),
      program.steps);
  program.steps.push_back(send(peers, {output(shape.rank)}));
  for (const int32_t peer : peers) program.steps.push_back(recv(peer, {output(peer)}));
  return program;
}

}  // namespace

Algorithm all_reduce_two_shot() {
  return {.collective = Collective::all_reduce,
          .name = "two_shot",
          .source = "all-pairs, Shah et al., MSCCL++ 2025",
          .grade = Grade::canonical,
          .emit = emit_two_shot};
}

}  // namespace tutti::algorithms
