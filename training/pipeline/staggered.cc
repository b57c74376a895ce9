#include "training/pipeline/staggered.h"

#include <algorithm>

namespace tutti::training::pipeline {

std::vector<Entry> staggered(int micro_batches, int chunk, std::initializer_list<Pass> passes) {
  const int longest = std::ranges::max(passes, {}, &Pass::lag).lag;
  std::vector<Entry> entries;
  entries.reserve(passes.size() * static_cast<size_t>(micro_batches));
  for (int step = 0; step < micro_batches + longest; ++step) {
    for (const auto& [kind, lag] : passes) {
      const int micro_batch = step - lag;
      if (micro_batch < 0 || micro_batch >= micro_batches) continue;
      entries.push_back({.kind = kind, .micro_batch = micro_batch, .chunk = chunk});
    }
  }
  return entries;
}

}  // namespace tutti::training::pipeline
