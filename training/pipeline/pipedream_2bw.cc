// PipeDream-2BW: 1F1B without flushes, with two versions of the weights on every rank.
//
//   updates of 2  | u = 0 | u = 1 | u = 2       | u = 3       ...
//   micro-batches | 0 1   | 2 3   | 4 5         | 6 7         ...
//   weights       | W0    | W0    | after u = 0 | after u = 1 ...
//
// The delay is equal on all ranks, so training is gradient descent with gradients one update old.
//
// Condition: with a micro-batches per update, the first micro-batch of update u >= 2 has index i =
// u a. When its forward starts, update u - 2 must be complete, and therefore the backwards of the
// first (u - 1) a micro-batches. 1F1B has computed i - (p - 1 - rank) backwards by then. These are
// enough on every rank if and only if a >= p - 1. (In a run of only two updates, any a would be
// enough.)
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
