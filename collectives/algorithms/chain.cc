// Chains: broadcast, reduce, scan and exscan along a line of neighbours.
//
//   broadcast, p = 4, root 1:      1 ──→ 2 ──→ 3 ──→ 0          slice s is on the third link while
//   reduce, p = 4, root 1:         1 ←── 2 ←── 3 ←── 0          slice s + 1 is on the second
//   scan, p = 4:                   0 ──→ 1 ──→ 2 ──→ 3
//
// Slices of a call are independent, so a chain is a pipeline: only the first slice waits for p - 1
// rounds, then every rank forwards data at full speed. Each rank sends the buffer once, which is
// the minimum, and only the last rank of a host sends to another host. So a chain is meant for
// large buffers and moderate p.
//
// If a transport has few lanes, slices may be long. chain_8 and chain_32 therefore divide the
// buffer into 8 or 32 chunks, which are pipelined as slices are: each rank sends more messages, but
// waits less for the first one.
//
// Partial sums are sent in the type of the elements, so every rank rounds them, in the order of the
// chain. (Reduce builds a
// right-leaning tree and scan a left-leaning one, so neither is canonical.)
//
// J. L. Träff, A. Ripke: Optimal Broadcast for Fully Connected Processor-Node Networks. JPDC 68(7),
// 2008 (on pipelines); "chain" and "pipeline" in Open MPI.

#include <functional>
#include <utility>

#include "base/text.h"
#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_chain_broadcast(const Shape& shape, int32_t chunks) {
  const int32_t p = shape.ranks;
  const bool is_root = shape.rank == shape.root;
  const int32_t next = (shape.rank + 1) % p;
  Program program{.input_chunks = chunks, .output_chunks = chunks};
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    if (!is_root) program.steps.push_back(recv((shape.rank + p - 1) % p, {output(chunk)}));
    if (next != shape.root) {
      program.steps.push_back(send({next}, {is_root ? input(chunk) : output(chunk)}));
    }
  }
  if (is_root) program.steps.push_back(copy({input(0, chunks)}, {output(0, chunks)}));
  return program;
}

Program emit_chain_reduce(const Shape& shape, int32_t chunks) {
  const int32_t p = shape.ranks;
  Program program{
      .input_chunks = chunks, .output_chunks = chunks, .scratch_chunks = p > 2 ? chunks : 0};
  if (p == 1) {
    program.steps = {copy({input(0, chunks)}, {output(0, chunks)})};
    return program;
  }
  const bool is_root = shape.rank == shape.root;
  const int32_t next = (shape.rank + 1) % p;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    ChunkRange mine = input(chunk);
    if (next != shape.root) {
      const ChunkRange sum = is_root ? output(chunk) : scratch(chunk);
      program.steps.push_back(recv_reduce_right(next, {mine}, {sum}));
      mine = sum;
    }
    if (!is_root) program.steps.push_back(send({(shape.rank + p - 1) % p}, {mine}));
  }
  return program;
}

Program emit_scan(const Shape& shape) {
  Program program;
  const bool is_first = shape.rank == 0;
  const bool is_last = shape.rank == shape.ranks - 1;
  if (!is_first) {
    program.steps.push_back(recv_reduce_left(shape.rank - 1, {input(0)}, {output(0)}));
  }
  if (!is_last) program.steps.push_back(send({shape.rank + 1}, {is_first ? input(0) : output(0)}));
  if (is_first) program.steps.push_back(copy({input(0)}, {output(0)}));
  return program;
}

// Emits an exscan. In place, the result overwrites the input, but the input is needed for the next
// rank's result. So the result stays in scratch until the input has been used.
Program emit_exscan(const Shape& shape) {
  Program program{.scratch_chunks = shape.ranks > 2 ? 2 : 0};
  const bool is_first = shape.rank == 0;
  const bool is_last = shape.rank == shape.ranks - 1;
  if (is_first && !is_last) {
    program.steps = {send({1}, {input(0)})};
  } else if (is_last && !is_first) {
    program.steps = {recv(shape.rank - 1, {output(0)})};
  } else if (!is_first) {
    program.steps = {recv(shape.rank - 1, {scratch(0)}),
                     reduce({scratch(0)}, {input(0)}, {scratch(1)}),
                     send({shape.rank + 1}, {scratch(1)}), copy({scratch(0)}, {output(0)})};
  }
  return program;
}

Algorithm chain_row(Collective collective, std::function<Program(const Shape& shape)> emit,
                    int32_t chunks = 1) {
  return {.collective = collective,
          .name = chunks == 1 ? "chain" : cat("chain_", chunks),
          .source = "Träff, Ripke, JPDC 2008",
          .grade = reduces(collective) ? Grade::same_bits : Grade::canonical,
          .is_pipeline = true,
          .emit = std::move(emit)};
}

}  // namespace

Algorithm broadcast_chain(int32_t chunks) {
  return chain_row(
      Collective::broadcast,
      [chunks](const Shape& shape) { return emit_chain_broadcast(shape, chunks); }, chunks);
}

Algorithm reduce_chain(int32_t chunks) {
  return chain_row(
      Collective::reduce, [chunks](const Shape& shape) { return emit_chain_reduce(shape, chunks); },
      chunks);
}

Algorithm scan_chain() { return chain_row(Collective::scan, emit_scan); }
Algorithm exscan_chain() { return chain_row(Collective::exscan, emit_exscan); }

}  // namespace tutti::algorithms
