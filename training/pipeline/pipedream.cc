// PipeDream: 1F1B without flushes. Each rank updates its weights as soon as it has the gradients of
// an update, and keeps (stashes) old versions for micro-batches whose backward is still to come.
//
//   rank 0 | F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 ..     On rank 0, F3 uses the weights after the
//   rank 1 |    F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 ..     update by B0. B3 uses the same version,
//   rank 2 |       F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 ..     which is then p - 1 - rank = 2 updates old.
//
// No rank is idle in the steady state. With one update per micro-batch, a rank keeps up to p - rank
// versions of the weights.
//
// D. Narayanan et al.: PipeDream: Generalized Pipeline Parallelism for DNN Training. SOSP 2019.
// Sections 3.2 and 3.3, figure 4.

#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {

Schedule pipedream(int p, int m, int accumulated) {
  Schedule result = one_f_one_b(p, m);
  result.name = "pipedream";
  result.updates = Updates::latest;
  result.accumulated = accumulated;
  return result;
}

}  // namespace tutti::training::pipeline
