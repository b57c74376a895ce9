// Bidirectional ring all-reduce: two rings in opposite directions, each with half of the buffer.
//
//      0 ←─→ 1        first half: 0 → 1 → 2 → 3 → 0
//      ↕     ↕        second half: 0 → 3 → 2 → 1 → 0
//      3 ←─→ 2
//
// It has the ring's rounds and volume, but uses both directions of every link at once. If ranks can
// use both of their links at full speed, it takes half of the ring's time.
//
// E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective Communication: Theory,
// Practice, and Experience. CCPE 19(13), 2007; NCCL's rings come in such pairs, too.

#include <cstdint>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/over_rings.h"

namespace tutti::algorithms {

namespace {

Program emit_ring_bidirectional(const Shape& shape) {
  std::vector<int32_t> forward;
  std::vector<int32_t> backward;
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    forward.push_back(rank);
    backward.push_back((shape.ranks - rank) % shape.ranks);
  }
  return all_reduce_over_rings({forward, backward}, shape.rank);
}

}  // namespace

Algorithm all_reduce_ring_bidirectional() {
  return {.collective = Collective::all_reduce,
          .name = "ring_bidirectional",
          .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
          .grade = all_reduce_ring().grade,
          .emit = emit_ring_bidirectional};
}

}  // namespace tutti::algorithms
