// Bidirectional ring all-reduce: two rings in opposite directions, each with half of the buffer.
//
//      0 ←─→ 1        first half: 0 → 1 → 2 → 3 → 0
//      ↕     ↕        second half: 0 → 3 → 2 → 1 → 0
//      3 ←─→ 2
//
// The ring's rounds and volume, over both directions of every link at once: in half of the ring's
// time where a rank can use both of its links.
//
// E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective Communication: Theory,
// Practice, and Experience. CCPE 19(13), 2007; NCCL's rings come in such pairs, too.

#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/compose.h"

namespace tutti::algorithms {

namespace {

Program emit(const Algorithm& ring, const Shape& shape) {
  const int32_t p = shape.ranks;
  const auto mirrored = [p](int32_t rank) { return (p - rank) % p; };
  const auto half = [&](int32_t first, std::function<int32_t(int32_t)> rank_of) {
    return Embedding{.rank_of = std::move(rank_of),
                     .input = {Space::input, first},
                     .output = {Space::output, first},
                     .scratch = {Space::scratch, first},
                     .inner_classes = p,
                     .outer_classes = 2 * p};
  };
  const Embedding forward = half(0, [](int32_t rank) { return rank; });
  const Embedding backward = half(p, mirrored);

  Program program{.input_chunks = 2 * p, .output_chunks = 2 * p, .fan_out = p > 2 ? 2 : 1};
  if (p == 1) {
    program.steps = {copy({input(0, 2)}, {output(0, 2)})};
    return program;
  }
  const Program one = ring.emit(shape);
  const Program other = ring.emit({.ranks = p, .rank = mirrored(shape.rank)});
  program.scratch_chunks = forward.scratch_chunks(one);
  for (size_t i = 0; i < one.steps.size(); ++i) {  // as many in both
    program.steps.push_back(forward.embed(one.steps[i]));
    program.steps.push_back(backward.embed(other.steps[i]));
  }
  return program;
}

}  // namespace

Algorithm all_reduce_ring_bidirectional() {
  const Algorithm ring = all_reduce_ring();
  return {.collective = Collective::all_reduce,
          .name = "ring_bidirectional",
          .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
          .grade = ring.grade,
          .emit = [ring](const Shape& shape) { return emit(ring, shape); }};
}

}  // namespace tutti::algorithms
