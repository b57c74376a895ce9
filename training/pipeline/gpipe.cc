// GPipe: all forwards, then all backwards.
//
//   rank 0 | F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3     idle: (p - 1) / (m + p - 1)
//   rank 1 |    F0 F1 F2 F3 .. .. B0 B1 B2 B3        memory: all m micro-batches on every rank
//   rank 2 |       F0 F1 F2 F3 B0 B1 B2 B3
//
// (The picture has three ranks, and backwards that take as long as forwards.) Here backwards take
// micro-batches in ascending order, so that all schedules add gradients in the same order; in the
// paper they take them in descending order.
//
// Y. Huang et al.: GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism.
// NeurIPS 2019. Section 2.2, figure 2c.

#include "training/pipeline/schedules.h"
#include "training/pipeline/staggered.h"

namespace tutti::training::pipeline {

Schedule gpipe(int p, int m) {
  Schedule result{.name = "gpipe", .ranks = p, .micro_batches = m, .chunks = p};
  for (int rank = 0; rank < p; ++rank) {
    result.table.push_back(staggered(m, rank, {{Kind::forward, 0}, {Kind::backward, m}}));
  }
  return result;
}

}  // namespace tutti::training::pipeline
