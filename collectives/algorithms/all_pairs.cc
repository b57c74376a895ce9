// All-pairs all-gather and reduce-scatter: all ranks exchange with each other in one round.
//
//   all-gather         block   0 1 2 3       reduce-scatter     block   0 1 2 3
//                     rank 0   ■ ← ← ←       each rank sends   rank 0   ■ → → →
//   each rank sends its    1   → ■ ← ←       block r to rank r,     1   ← ■ → →
//   block to all           2   → → ■ ←       which reduces all      2   ← ← ■ →
//                          3   → → → ■       of them                3   ← ← ← ■
//
// Each rank sends p - 1 messages of one block: the minimum volume and, if messages cost little, the
// minimum latency. An all-gather's block is one message with p - 1 readers: on shared memory, one
// copy. A reduce-scatter's inputs travel unreduced and are reduced in the canonical order, so
// 16-bit floats travel in 16 bits and are still rounded only once. (Pairwise exchange would be the
// same program: it pairs the ranks differently in each round, but no round waits for another.)
//
// All-pairs: A. Shah et al.: MSCCL++, 2025. Pairwise reduce-scatter: R. Thakur, R. Rabenseifner, W.
// Gropp, IJHPCA 19(1), 2005.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_all_pairs_all_gather(const Shape& shape) {
  Program program{.output_chunks = shape.ranks};
  const std::vector<int32_t> peers = others(shape);
  if (!peers.empty()) {
    program.fan_out = shape.ranks - 1;
    program.steps.push_back(send(peers, {input(0)}));
  }
  program.steps.push_back(copy({input(0)}, {output(shape.rank)}));
  for (const int32_t peer : peers) program.steps.push_back(recv(peer, {output(peer)}));
  return program;
}

Program emit_all_pairs_reduce_scatter(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = p * slots_to_reduce(p);
  program.fan_out = p - 1;
  for (const int32_t peer : others(shape)) program.steps.push_back(send({peer}, {input(peer)}));
  receive_and_reduce_canonically(
      p,
      [&](int32_t rank) -> Contribution {
        if (rank == shape.rank) return {.here = input(rank)};
        return {.peer = rank};
      },
      [&](int32_t slot) { return scratch(slot * p + shape.rank); }, output(0), program.steps);
  return program;
}

Algorithm all_pairs_row(Collective collective, Program (*emit)(const Shape& shape)) {
  return {.collective = collective,
          .name = "all_pairs",
          .source = "all-pairs, Shah et al., MSCCL++ 2025",
          .grade = Grade::canonical,
          .emit = emit};
}

}  // namespace

Algorithm all_gather_all_pairs() {
  return all_pairs_row(Collective::all_gather, emit_all_pairs_all_gather);
}
Algorithm reduce_scatter_all_pairs() {
  return all_pairs_row(Collective::reduce_scatter, emit_all_pairs_reduce_scatter);
}

}  // namespace tutti::algorithms
