// One-shot all-reduce: every rank sends its input to all others and reduces all inputs.
//
//        0 ─────── 1          One round, p(p-1) messages of the whole buffer: the lowest latency
//        │ ╲   ╱   │          for small buffers. If many ranks can read one buffer (shared memory,
//        │   ╳     │          NVLink multicast), each rank writes its input once.
//        │ ╱   ╲   │
//        2 ─────── 3          It sends the messages of the naive algorithm (naive.cc), but every
//                             second message is reduced from its receive slot, and log2 p partial
//                             sums are stored instead of p - 1 inputs.
//
// All-pairs one-phase all-reduce: A. Shah et al.: MSCCL++, 2025; NVIDIA TensorRT-LLM's "one-shot".

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_one_shot(const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = slots_to_reduce(shape.ranks);
  program.fan_out = shape.ranks - 1;
  program.steps = {send(others(shape), {input(0)})};
  const auto contribution = [&](int32_t rank) {
    return rank == shape.rank ? Contribution{.here = input(0)} : Contribution{.peer = rank};
  };
  receive_and_reduce_canonically(
      shape.ranks, contribution, [](int32_t slot) { return scratch(slot); }, output(0),
      program.steps);
  return program;
}

}  // namespace

Algorithm all_reduce_one_shot() {
  return {.collective = Collective::all_reduce,
          .name = "one_shot",
          .source = "all-pairs, Shah et al., MSCCL++ 2025",
          .grade = Grade::canonical,
          .emit = emit_one_shot};
}

}  // namespace tutti::algorithms
