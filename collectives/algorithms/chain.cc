// Chains: broadcast, reduce, scan and exscan from neighbour to neighbour.
//
//   broadcast, p = 4, root 1:      1 ──→ 2 ──→ 3 ──→ 0          slice s is on the third link while
//   reduce, p = 4, root 1:         1 ←── 2 ←── 3 ←── 0          s + 1 is on the second
//   scan, p = 4:                   0 ──→ 1 ──→ 2 ──→ 3
//
// Slices of a call are independent of each other, so a chain is a pipeline: its p - 1 rounds are
// paid once, for the first slice; from then on every rank passes on what it gets at full speed.
// Each sends the buffer once, the least that is possible, and only the last rank of a host sends to
// another host: for large buffers and moderate p.
//
// Sums travel as elements, rounded by every rank; the order is that of the chain. (A right-leaning
// tree for reduce, a left-leaning one for scan, so neither is canonical.)
//
// J. L. Träff, A. Ripke: Optimal Broadcast for Fully Connected Processor-Node Networks. JPDC 68(7),
// 2008 (on pipelines); "chain" and "pipeline" in Open MPI.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_broadcast(const Shape& shape) {
  const int32_t p = shape.ranks;
  const bool is_root = shape.rank == shape.root;
  const int32_t next = (shape.rank + 1) % p;
  Program program;
  if (!is_root) program.steps.push_back(recv((shape.rank + p - 1) % p, {output(0)}));
  if (next != shape.root) {
    program.steps.push_back(send({next}, {is_root ? input(0) : output(0)}));
  }
  if (is_root) program.steps.push_back(copy({input(0)}, {output(0)}));
  return program;
}

Program emit_reduce(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.scratch_chunks = p > 2 ? 1 : 0};
  if (p == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  const bool is_root = shape.rank == shape.root;
  const int32_t next = (shape.rank + 1) % p;
  ChunkRange mine = input(0);
  if (next != shape.root) {
    const ChunkRange sum = is_root ? output(0) : scratch(0);
    program.steps.push_back(recv_reduce_right(next, {mine}, {sum}));
    mine = sum;
  }
  if (!is_root) program.steps.push_back(send({(shape.rank + p - 1) % p}, {mine}));
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

// In place the result would overwrite the input, which the next rank's result needs: so the result
// waits in scratch until it has been used.
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

Algorithm row(Collective collective, Program (*emit)(const Shape& shape)) {
  return {.collective = collective,
          .name = "chain",
          .source = "Träff, Ripke, JPDC 2008",
          .grade = reduces(collective) ? Grade::same_bits : Grade::canonical,
          .emit = emit};
}

}  // namespace

Algorithm broadcast_chain() { return row(Collective::broadcast, emit_broadcast); }
Algorithm reduce_chain() { return row(Collective::reduce, emit_reduce); }
Algorithm scan_chain() { return row(Collective::scan, emit_scan); }
Algorithm exscan_chain() { return row(Collective::exscan, emit_exscan); }

}  // namespace tutti::algorithms
