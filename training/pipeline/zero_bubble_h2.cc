// ZB-H2: like ZB-H1, with twice the lags. So many forwards come first that the first gradient
// arrives by the time they are done. No rank is then idle between its first and its last entry.
//
//   rank 0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
//   rank 1 |    F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
//   rank 2 |       F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5
//
// Rank r ends r entries after rank 0: if steps follow one another without a barrier, no rank is
// ever idle (for F, I and W of equal time, and m >= 2p - 1). Memory: 2p - 1 micro-batches on every
// rank, each until its W.
//
// P. Qi, X. Wan, G. Huang, M. Lin: Zero Bubble Pipeline Parallelism. 2023. Section 2.2, figure 3.

#include "training/pipeline/schedules.h"
#include "training/pipeline/staggered.h"

namespace tutti::training::pipeline {

Schedule zero_bubble_h2(int p, int m) {
  Schedule result{.name = "zb-h2", .ranks = p, .micro_batches = m, .chunks = p};
  for (int rank = 0; rank < p; ++rank) {
    result.table.push_back(staggered(m, rank,
                                     {{Kind::forward, 0},
                                      {Kind::backward_input, 2 * (p - 1 - rank)},
                                      {Kind::backward_weight, 2 * (p - 1)}}));
  }
  return result;
}

}  // namespace tutti::training::pipeline
