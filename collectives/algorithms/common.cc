// What several algorithms share.

#include <algorithm>
#include <bit>
#include <set>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// Reduces the contributions of ranks first .. last - 1 and says where the result is. The canonical
// tree splits them at the largest power of two below their number.
ChunkRange reduce_group(const std::function<ChunkRange(int32_t)>& of, int32_t first, int32_t last,
                        const ChunkRange* result, std::vector<Step>& steps) {
  const int32_t size = last - first;
  if (size == 1) return of(first);
  const auto half = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size - 1)));
  const ChunkRange lower = reduce_group(of, first, first + half, nullptr, steps);
  const ChunkRange upper = reduce_group(of, first + half, last, nullptr, steps);
  const ChunkRange partial = lower.space == Space::scratch ? lower : upper;
  steps.push_back(reduce({lower}, {upper}, {result != nullptr ? *result : partial}));
  return partial;
}

}  // namespace

int32_t doublings(int32_t ranks) {
  return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(ranks - 1)));
}

std::string powers_of_two_only(const Shape& shape) {
  const bool fits = std::has_single_bit(static_cast<uint32_t>(shape.ranks));
  return fits ? "" : "it needs a power of two of them";
}

int32_t largest_fan_out(int32_t ranks, std::vector<Step> (*steps)(int32_t ranks, int32_t rank)) {
  size_t largest = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    std::set<int32_t> targets;
    for (const Step& step : steps(ranks, rank)) {
      if (step.kind == StepKind::send) targets.insert(step.peers.begin(), step.peers.end());
    }
    largest = std::max(largest, targets.size());
  }
  return static_cast<int32_t>(largest);
}

void reduce_canonically(int32_t ranks, const std::function<ChunkRange(int32_t)>& of,
                        ChunkRange result, std::vector<Step>& steps) {
  if (ranks == 1) {
    steps.push_back(copy({of(0)}, {result}));
  } else {
    reduce_group(of, 0, ranks, &result, steps);
  }
}

}  // namespace tutti::algorithms
