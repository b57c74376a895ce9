// ZB-H1: 1F1B with split backward. The previous rank waits for the gradient of the input (I), which
// is computed at least as early as in 1F1B. No rank waits for the gradient of the weights (W). On
// every rank, W is computed p - 1 steps after its forward, at times when 1F1B would be idle.
//
//   rank 0 | F0 F1 F2 .. .. I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4
//   rank 1 |    F0 F1 .. I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4
//   rank 2 |       F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4
//
// If F, I and W take the same time t and m >= p, every rank is idle for (p - 1) t per step; in
// 1F1B, whose backward takes 2t, it is idle for 3 (p - 1) t. Memory: p micro-batches on every rank,
// each until its W. That is the memory of 1F1B's first rank.
//
// P. Qi, X. Wan, G. Huang, M. Lin: Zero Bubble Pipeline Parallelism. 2023. Section 2.1, figure 2.

#include "training/pipeline/schedules.h"
#include "training/pipeline/staggered.h"

namespace tutti::training::pipeline {

Schedule zero_bubble_h1(int p, int m) {
  Schedule result{.name = "zb-h1", .ranks = p, .micro_batches = m, .chunks = p};
  for (int rank = 0; rank < p; ++rank) {
    result.table.push_back(staggered(m, rank,
                                     {{Kind::forward, 0},
                                      {Kind::backward_input, p - 1 - rank},
                                      {Kind::backward_weight, p - 1}}));
  }
  return result;
}

}  // namespace tutti::training::pipeline
