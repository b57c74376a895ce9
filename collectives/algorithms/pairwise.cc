// Pairwise all-to-all: in every round the ranks form pairs, and each pair exchanges its blocks.
//
//   p = 4:   round 0:  0 ↻   1 ─ 3   2 ↻        In round k, ranks r and (k - r) mod p meet, as in a
//            round 1:  0 ─ 1   2 ─ 3            round-robin tournament; a rank that meets itself
//            round 2:  0 ─ 2   1 ↻   3 ↻        copies. Nobody is sent to by two others at a time.
//            round 3:  0 ─ 3   1 ─ 2
//
// p rounds of one block each, straight from input to output. Rounds are an order of preference
// here, not a barrier: whoever is ready goes ahead. In place, a block leaves before the one from
// the same rank takes its place.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005; the pairs for p that is no power of two are those of the tournament.

#include <algorithm>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit(const Shape& shape) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = p, .output_chunks = p, .fan_out = std::max(1, p - 1)};
  for (int32_t round = 0; round < p; ++round) {
    const int32_t peer = (round - shape.rank + p) % p;
    if (peer == shape.rank) {
      program.steps.push_back(copy({input(peer)}, {output(peer)}));
    } else {
      program.steps.push_back(send({peer}, {input(peer)}));
      program.steps.push_back(recv(peer, {output(peer)}));
    }
  }
  return program;
}

}  // namespace

Algorithm all_to_all_pairwise() {
  return {.collective = Collective::all_to_all,
          .name = "pairwise",
          .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
          .grade = Grade::canonical,
          .direct = true,
          .emit = emit};
}

}  // namespace tutti::algorithms
