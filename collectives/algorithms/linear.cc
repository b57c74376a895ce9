// Linear algorithms, in which no rank forwards data. In broadcast, reduce, gather and scatter, data
// passes directly between the root and each other rank; in all-to-all, directly between each pair
// of ranks.
//
//          0               It takes one round. A broadcast is one send step with all other ranks as
//       ╱ ╱ │ ╲ ╲          peers, which is optimal if they read one copy (shared memory). Otherwise
//      1 2  3  4 5         the root is the bottleneck; in gather and scatter it always is.
//
// Reduce: the root combines the inputs by the canonical tree, in this order even if they arrive in
// another one. All-to-all: rank r sends to r + 1, r + 2 ..., so that the ranks do not all start
// with the same target. (MPICH's pairwise exchange sends the same messages in the same order but
// waits between rounds; here each message is sent as soon as possible.)
//
// Folklore; "linear" or "basic" in Open MPI.

#include <algorithm>
#include <ranges>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

int32_t most_peers(const Shape& shape) { return std::max(1, shape.ranks - 1); }

Program emit_linear_broadcast(const Shape& shape) {
  Program program{.fan_out = most_peers(shape)};
  if (shape.rank != shape.root) {
    program.steps = {recv(shape.root, {output(0)})};
    return program;
  }
  if (shape.ranks > 1) {
    program.steps = {send(others(shape), {input(0)})};
  }
  program.steps.push_back(copy({input(0)}, {output(0)}));
  return program;
}

Program emit_linear_reduce(const Shape& shape) {
  Program program;
  if (shape.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  program.scratch_chunks = slots_to_reduce(shape.ranks);
  if (shape.rank != shape.root) {
    program.steps = {send({shape.root}, {input(0)})};
    return program;
  }
  const auto contribution = [&](int32_t rank) -> Contribution {
    if (rank == shape.rank) return {.here = input(0)};
    return {.peer = rank};
  };
  receive_and_reduce_canonically(
      shape.ranks, contribution, [](int32_t slot) { return scratch(slot); }, output(0),
      program.steps);
  return program;
}

Program emit_linear_gather(const Shape& shape) {
  Program program{.output_chunks = shape.ranks};
  if (shape.rank != shape.root) {
    program.steps = {send({shape.root}, {input(0)})};
    return program;
  }
  program.steps = {copy({input(0)}, {output(shape.rank)})};
  for (const int32_t peer : others(shape)) {
    program.steps.push_back(recv(peer, {output(peer)}));
  }
  return program;
}

Program emit_linear_scatter(const Shape& shape) {
  Program program{.input_chunks = shape.ranks, .fan_out = most_peers(shape)};
  if (shape.rank != shape.root) {
    program.steps = {recv(shape.root, {output(0)})};
    return program;
  }
  for (const int32_t peer : others(shape)) {
    program.steps.push_back(send({peer}, {input(peer)}));
  }
  program.steps.push_back(copy({input(shape.rank)}, {output(0)}));
  return program;
}

// Emits an all-to-all. In place, the block received from a rank overwrites the block to send to
// that rank, so all sends come first.
Program emit_all_to_all(const Shape& shape) {
  Program program{
      .input_chunks = shape.ranks, .output_chunks = shape.ranks, .fan_out = most_peers(shape)};
  const std::vector<int32_t> peers = others(shape);
  for (const int32_t peer : peers) program.steps.push_back(send({peer}, {input(peer)}));
  program.steps.push_back(copy({input(shape.rank)}, {output(shape.rank)}));
  for (const int32_t peer : std::views::reverse(peers)) {
    program.steps.push_back(recv(peer, {output(peer)}));
  }
  return program;
}

Algorithm linear_row(Collective collective, Program (*emit)(const Shape& shape)) {
  const bool moves_blocks = has_blocks(collective);
  return {.collective = collective,
          .name = "linear",
          .source = "folklore",
          .grade = Grade::canonical,
          .direct = moves_blocks,
          .emit = emit};
}

}  // namespace

Algorithm broadcast_linear() { return linear_row(Collective::broadcast, emit_linear_broadcast); }
Algorithm reduce_linear() { return linear_row(Collective::reduce, emit_linear_reduce); }
Algorithm gather_linear() { return linear_row(Collective::gather, emit_linear_gather); }
Algorithm scatter_linear() { return linear_row(Collective::scatter, emit_linear_scatter); }
Algorithm all_to_all_linear() { return linear_row(Collective::all_to_all, emit_all_to_all); }

}  // namespace tutti::algorithms
