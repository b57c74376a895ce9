// Interleaved 1F1B: v smaller chunks on each rank, chunk c on rank c % p, so that the pipeline
// fills and drains faster.
//
//   rank 0 | F0.0 F1.0 F0.2 F1.2 .... B0.2 .... B1.2 B0.0 B1.0      p = m = v = 2; F0.2 is
//   rank 1 |      F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1           micro-batch 0, chunk 2
//
// Idle, if m is a multiple of p: (p - 1) / (v m + p - 1).
//
// Micro-batches are processed in groups of p. A rank runs the forwards of a group through its first
// chunk, then through its second chunk and so on, and then takes the next group. It runs backwards
// in the same way, but from the last chunk to the first. 1F1B is applied to these units of work,
// with w = (v - 1) p + 2 (p - 1 - rank) forwards first. Memory: up to w + 1 micro-batches in one
// chunk each.
//
// The paper requires m to be a multiple of p. Here any m is possible: the missing micro-batches of
// the last group are skipped. Skipping makes no other micro-batch wait longer.
//
// D. Narayanan et al.: Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM. SC 2021. Section 2.2, figure 4.

#include "training/pipeline/schedules.h"
#include "training/pipeline/staggered.h"

namespace tutti::training::pipeline {

Schedule interleaved(int p, int m, int v) {
  Schedule result{.name = "interleaved", .ranks = p, .micro_batches = m, .chunks = v * p};
  if (v == 1) {  // fewer warm-up forwards suffice, because no micro-batch returns to this rank
    result.table = one_f_one_b(p, m).table;
    return result;
  }
  const int groups = (m + p - 1) / p;
  for (int rank = 0; rank < p; ++rank) {
    const int first = (v - 1) * p + 2 * (p - 1 - rank);
    // Entries whose `micro_batch` is the index of a unit of work.
    std::vector<Entry> entries =
        staggered(groups * v * p, 0, {{Kind::forward, 0}, {Kind::backward, first}});
    for (Entry& entry : entries) {
      const int unit = entry.micro_batch;
      const int turn = unit / p % v;
      entry.micro_batch = unit / (v * p) * p + unit % p;
      entry.chunk = (entry.kind == Kind::forward ? turn : v - 1 - turn) * p + rank;
    }
    std::erase_if(entries, [m](const Entry& entry) { return entry.micro_batch >= m; });
    result.table.push_back(std::move(entries));
  }
  return result;
}

}  // namespace tutti::training::pipeline
