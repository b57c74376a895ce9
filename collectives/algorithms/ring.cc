// Ring: chunks travel from each rank to the next one, p - 1 hops per phase.
//
//      0 ──→ 1        reduce-scatter: the partial sum of chunk c starts at rank c + 1; each rank
//      ↑     │        adds its own contribution on the right; the sum is complete at rank c.
//      │     ↓
//      3 ←── 2        all-gather: rank c sends complete chunk c round the ring.
//
//   chunk 0, p = 4:   rank 1's contribution → 2 (1 + 2) → 3 ((1 + 2) + 3) → 0 (((1 + 2) + 3) + 0),
//                     then the sum goes 0 → 1 → 2 → 3
//
// All-reduce runs both phases, one after the other. Every rank sends 2(p-1) messages of 1/p of the
// buffer, which is the minimum volume of an all-reduce, and all links carry the same volume.
//
// P. Patarasuk, X. Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations.
// JPDC 69(2), 2009.

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

struct Ring {
  explicit Ring(const Shape& shape)
      : ranks(shape.ranks),
        next((shape.rank + 1) % shape.ranks),
        previous((shape.rank + shape.ranks - 1) % shape.ranks),
        rank(shape.rank) {}

  // Returns the chunk owned by this rank's `hops`-th predecessor.
  int32_t chunk(int32_t hops) const { return (rank + ranks - hops % ranks) % ranks; }

  int32_t ranks;
  int32_t next;
  int32_t previous;
  int32_t rank;
};

// Appends a reduce-scatter, after which rank r has the sum of chunk r. `partial(hop)` returns where
// the sum computed at a hop is stored.
template <typename Partial>
void ring_reduce_scatter(const Ring& ring, Partial partial, std::vector<Step>& steps) {
  ChunkRange mine = input(ring.chunk(1));
  for (int32_t hop = 2; hop <= ring.ranks; ++hop) {
    const ChunkRange sum = partial(hop);
    steps.push_back(send({ring.next}, {mine}));
    steps.push_back(recv_reduce_left(ring.previous, {input(ring.chunk(hop))}, {sum}));
    mine = sum;
  }
}

// Appends an all-gather. `mine`: location of this rank's own chunk.
void ring_all_gather(const Ring& ring, ChunkRange mine, std::vector<Step>& steps) {
  for (int32_t hop = 1; hop < ring.ranks; ++hop) {
    steps.push_back(send({ring.next}, {mine}));
    mine = output(ring.chunk(hop));
    steps.push_back(recv(ring.previous, {mine}));
  }
}

Program emit_ring_all_reduce(const Shape& shape) {
  const Ring ring(shape);
  Program program{.input_chunks = ring.ranks, .output_chunks = ring.ranks};
  if (ring.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  ring_reduce_scatter(
      ring, [&](int32_t hop) { return output(ring.chunk(hop)); }, program.steps);
  ring_all_gather(ring, output(ring.rank), program.steps);
  return program;
}

Program emit_ring_all_gather(const Shape& shape) {
  const Ring ring(shape);
  Program program{.input_chunks = 1, .output_chunks = ring.ranks};
  ring_all_gather(ring, input(0), program.steps);
  program.steps.push_back(copy({input(0)}, {output(ring.rank)}));
  return program;
}

// Emits a reduce-scatter. The partial sum of block b is in scratch(b).
Program emit_ring_reduce_scatter(const Shape& shape) {
  const Ring ring(shape);
  Program program{.input_chunks = ring.ranks, .output_chunks = 1, .scratch_chunks = ring.ranks};
  if (ring.ranks == 1) {
    program.steps = {copy({input(0)}, {output(0)})};
    return program;
  }
  const auto partial = [&](int32_t hop) {
    return hop == ring.ranks ? output(0) : scratch(ring.chunk(hop));
  };
  ring_reduce_scatter(ring, partial, program.steps);
  return program;
}

constexpr const char* kSource = "Patarasuk, Yuan, JPDC 2009";

}  // namespace

Algorithm all_reduce_ring() {
  return {.collective = Collective::all_reduce,
          .name = "ring",
          .source = kSource,
          .grade = Grade::same_bits,
          .emit = emit_ring_all_reduce};
}

Algorithm all_gather_ring() {
  return {.collective = Collective::all_gather,
          .name = "ring",
          .source = kSource,
          .grade = Grade::canonical,
          .emit = emit_ring_all_gather};
}

Algorithm reduce_scatter_ring() {
  return {.collective = Collective::reduce_scatter,
          .name = "ring",
          .source = kSource,
          .grade = Grade::same_bits,
          .emit = emit_ring_reduce_scatter};
}

}  // namespace tutti::algorithms
