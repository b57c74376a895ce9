// Dissemination barrier: in round k everyone tells the rank 2^k further that it has heard from all
// between.
//
//   p = 5, who has heard from whom:       rank 0 knows   0    4 0    2 3 4 0    0 1 2 3 4
//     round 0: r → r + 1                                 ──→     ──→        ──→
//     round 1: r → r + 2                                round 0  round 1   round 2
//     round 2: r → r + 4
//
// ceil(log2 p) rounds of tokens, which carry no data: a token says that all earlier receives of its
// sender are done.
//
// D. Hensgen, R. Finkel, U. Manber: Two Algorithms for Barrier Synchronization. IJPP 17(1), 1988.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{
      .input_chunks = 0, .output_chunks = 0, .fan_out = std::max(1, doublings(shape.ranks))};
  for (int32_t distance = 1; distance < p; distance *= 2) {
    program.steps.push_back(send({(shape.rank + distance) % p}, {}));
    program.steps.push_back(recv((shape.rank + p - distance) % p, {}));
  }
  return program;
}

}  // namespace

Algorithm barrier_dissemination() {
  return {.collective = Collective::barrier,
          .name = "dissemination",
          .source = "Hensgen, Finkel, Manber, IJPP 1988",
          .grade = Grade::canonical,
          .emit = emit};
}

}  // namespace tutti::algorithms
