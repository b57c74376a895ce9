// What several algorithms share.

#include <algorithm>
#include <bit>
#include <set>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// Reduces the contributions of ranks first .. last - 1 and says where the result is. The canonical
// tree splits them at the largest power of two below their number.
ChunkRange reduce_group(const Shape& shape, int32_t first, int32_t last, std::vector<Step>& steps) {
  const int32_t size = last - first;
  if (size == 1) return first == shape.rank ? input(0) : scratch(first);
  const auto half = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size - 1)));
  const ChunkRange lower = reduce_group(shape, first, first + half, steps);
  const ChunkRange upper = reduce_group(shape, first + half, last, steps);
  const ChunkRange result = size == shape.ranks ? output(0) : scratch(first);
  steps.push_back(reduce({lower}, {upper}, {result}));
  return result;
}

}  // namespace

int32_t doublings(int32_t ranks) {
  return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(ranks - 1)));
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

void receive_and_reduce_canonically(const Shape& shape, std::vector<Step>& steps) {
  for (int32_t peer = 0; peer < shape.ranks; ++peer) {
    if (peer != shape.rank) steps.push_back(recv(peer, {scratch(peer)}));
  }
  reduce_group(shape, 0, shape.ranks, steps);
}

}  // namespace tutti::algorithms
