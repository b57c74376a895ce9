// 1F1B, also called PipeDream-flush: after p - 1 - rank forwards, forwards and backwards alternate.
//
//   rank 0 | F0 F1 F2 .. .. B0 F3 B1 F4 B2 .. B3 .. B4     idle: (p - 1) / (m + p - 1), as GPipe
//   rank 1 |    F0 F1 .. B0 F2 B1 F3 B2 F4 B3 .. B4        memory: p - rank micro-batches,
//   rank 2 |       F0 B0 F1 B1 F2 B2 F3 B3 F4 B4             for any m
//
// Each backward frees memory for the next forward. That is the only advantage over GPipe.
//
// D. Narayanan et al.: Memory-Efficient Pipeline-Parallel DNN Training. ICML 2021. Section 3.2
// (PipeDream-flush). The order within a step: PipeDream, SOSP 2019, section 3.2.

#include "training/pipeline/schedules.h"
#include "training/pipeline/staggered.h"

namespace tutti::training::pipeline {

Schedule one_f_one_b(int p, int m) {
  Schedule result{.name = "1f1b", .ranks = p, .micro_batches = m, .chunks = p};
  for (int rank = 0; rank < p; ++rank) {
    result.table.push_back(
        staggered(m, rank, {{Kind::forward, 0}, {Kind::backward, p - 1 - rank}}));
  }
  return result;
}

}  // namespace tutti::training::pipeline
