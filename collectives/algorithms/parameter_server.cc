// Parameter-server all-reduce: all ranks send to a manager, which reduces and sends the result
// back.
//
//      1    2    3                  1    2    3
//       ╲   │   ╱                   ↑    ↑    ↑
//        ↘  ↓  ↙                     ╲   │   ╱
//      0 (reduces)        then      0 (one message to all)
//
// There are 2(p-1) transfers, all through rank 0, whose link is the bottleneck. Rank 0 reduces in
// the canonical order.
//
// M. Li et al.: Scaling Distributed Machine Learning with the Parameter Server. OSDI 2014.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

constexpr int32_t kManager = 0;

Program emit_parameter_server(const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = slots_to_reduce(shape.ranks);
  program.fan_out = shape.ranks - 1;
  if (shape.rank != kManager) {
    program.steps = {send({kManager}, {input(0)}), recv(kManager, {output(0)})};
    return program;
  }
  const auto contribution = [](int32_t rank) {
    return rank == kManager ? Contribution{.here = input(0)} : Contribution{.peer = rank};
  };
  receive_and_reduce_canonically(
      shape.ranks, contribution, [](int32_t slot) { return scratch(slot); }, output(0),
      program.steps);
  program.steps.push_back(send(others(shape), {output(0)}));
  return program;
}

}  // namespace

Algorithm all_reduce_parameter_server() {
  return {.collective = Collective::all_reduce,
          .name = "parameter_server",
          .source = "Li et al., OSDI 2014",
          .grade = Grade::canonical,
          .emit = emit_parameter_server};
}

}  // namespace tutti::algorithms
