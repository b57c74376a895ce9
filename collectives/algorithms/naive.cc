// Naive all-reduce: every rank sends its input to all others and reduces all inputs.
//
//        0 ─────── 1          p(p-1) messages of the whole buffer in one round. Each rank reduces
//        │ ╲   ╱   │          in the canonical order, so the result does not depend on the order
//        │   ╳     │          of arrival.
//        │ ╱   ╲   │
//        2 ─────── 3          The textbook all-to-all broadcast, kept as a baseline for comparison.

#include <numeric>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_naive(const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = shape.ranks;
  program.fan_out = shape.ranks - 1;
  std::vector<int32_t> others(shape.ranks);
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + shape.rank);
  program.steps = {send(others, {input(0)})};
  const auto contribution = [&](int32_t rank) {
    return rank == shape.rank ? input(0) : scratch(rank);
  };
  for (int32_t peer = 0; peer < shape.ranks; ++peer) {
    if (peer != shape.rank) program.steps.push_back(recv(peer, {contribution(peer)}));
  }
  reduce_canonically(shape.ranks, contribution, output(0), program.steps);
  return program;
}

}  // namespace

Algorithm all_reduce_naive() {
  return {.collective = Collective::all_reduce,
          .name = "naive",
          .source = "direct exchange, folklore",
          .grade = Grade::canonical,
          .emit = emit_naive};
}

}  // namespace tutti::algorithms
