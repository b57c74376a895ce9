// Naive all-reduce: everyone sends its input to everyone, and everyone reduces all of them.
//
//        0 ─────── 1          p(p-1) messages of the whole buffer, in one round. Each rank reduces
//        │ ╲   ╱   │          in the canonical order, so the result does not depend on who arrives
//        │   ╳     │          first.
//        │ ╱   ╲   │
//        2 ─────── 3          The all-to-all broadcast of every textbook; here to be compared with.

#include <numeric>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit(const Shape& shape) {
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
  receive_and_reduce_canonically(shape, program.steps);
  return program;
}

// Whatever is received goes through scratch, and so counts twice.
Cost cost(int32_t ranks) {
  const double others = ranks - 1;
  return {.messages = others, .moved = 2 * others, .reduced = others};
}

}  // namespace

Algorithm all_reduce_naive() {
  return {.collective = Collective::all_reduce,
          .name = "naive",
          .source = "direct exchange, folklore",
          .grade = Grade::canonical,
          .cost = cost,
          .emit = emit};
}

}  // namespace tutti::algorithms
