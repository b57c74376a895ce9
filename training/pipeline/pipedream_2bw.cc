// PipeDream-2BW: 1F1B without flushes, with two versions of the weights on every rank.
//
//   updates of 2  | u = 0 | u = 1 | u = 2       | u = 3       ...
//   micro-batches | 0 1   | 2 3   | 4 5         | 6 7         ...
//   weights       | W0    | W0    | after u = 0 | after u = 1 ...
//
// The delay is equal on all ranks, so it is gradient descent with gradients one update old.
//
// Condition: when the first micro-batch of update u >= 2 starts its forward, number i = u a for
// updates of a micro-batches, update u - 2 must be done, that is the backwards before (u - 1) a.
// 1F1B has done i - (p - 1 - rank) by then: enough on every rank if, and only if, a >= p - 1. (With
// two updates in total any a would do, but not for longer runs.)
//
// D. Narayanan et al.: Memory-Efficient Pipeline-Parallel DNN Training. ICML 2021. Section 3.1,
// figure 2.

#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {

Schedule pipedream_2bw(int p, int m, int accumulated) {
  Schedule result = one_f_one_b(p, m);
  result.name = "pipedream-2bw";
  result.updates = Updates::delayed;
  result.accumulated = accumulated;
  return result;
}

}  // namespace tutti::training::pipeline
