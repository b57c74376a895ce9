// Functions shared by several algorithms.

#include <algorithm>
#include <bit>
#include <set>
#include <tuple>
#include <utility>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

// Returns the number of contributions on the left of the canonical tree's root: the largest power
// of two below `size`.
int32_t split(int32_t size) {
  return static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size - 1)));
}

// Reduces the contributions of ranks first .. last - 1 and returns the result's location.
ChunkRange reduce_group(const std::function<ChunkRange(int32_t)>& of, int32_t first, int32_t last,
                        const ChunkRange* result, std::vector<Step>& steps) {
  const int32_t size = last - first;
  if (size == 1) return of(first);
  const int32_t middle = first + split(size);
  const ChunkRange lower = reduce_group(of, first, middle, nullptr, steps);
  const ChunkRange upper = reduce_group(of, middle, last, nullptr, steps);
  const ChunkRange partial = lower.space == Space::scratch ? lower : upper;
  steps.push_back(reduce({lower}, {upper}, {result != nullptr ? *result : partial}));
  return partial;
}

struct Reception {
  const std::function<Contribution(int32_t)>& of;
  const std::function<ChunkRange(int32_t)>& slot;
  std::vector<Step>& steps;

  // Reduces contributions first .. last - 1 and returns the result's location: `into`, or the
  // location of a single local contribution. Slots from `level` on are free.
  ChunkRange reduce_group(int32_t first, int32_t last, int32_t level, ChunkRange into) const {
    if (last - first == 1) {
      const Contribution one = of(first);
      if (one.peer < 0) return one.here;
      steps.push_back(recv(one.peer, {into}, one.wire));
      return into;
    }
    const int32_t middle = first + split(last - first);
    const Contribution left = of(middle - 1);
    const Contribution right = of(last - 1);
    if (last - first == 2 && left.peer >= 0 && right.peer < 0) {
      steps.push_back(recv_reduce_left(left.peer, {right.here}, {into}, left.wire));
      return into;
    }
    const ChunkRange lower = reduce_group(first, middle, level, slot(level));
    if (last - middle == 1 && right.peer >= 0) {
      steps.push_back(recv_reduce_right(right.peer, {lower}, {into}, right.wire));
    } else {
      const ChunkRange upper = reduce_group(middle, last, level + 1, slot(level + 1));
      steps.push_back(reduce({lower}, {upper}, {into}));
    }
    return into;
  }
};

}  // namespace

int32_t doublings(int32_t ranks) {
  return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(ranks - 1)));
}

std::string powers_of_two_only(const Shape& shape) {
  const bool fits = std::has_single_bit(static_cast<uint32_t>(shape.ranks));
  return fits ? "" : "it requires a power-of-two number of ranks";
}

std::vector<int32_t> others(const Shape& shape) {
  std::vector<int32_t> ranks;
  for (int32_t distance = 1; distance < shape.ranks; ++distance) {
    ranks.push_back((shape.rank + distance) % shape.ranks);
  }
  return ranks;
}

RangeList around(Space space, int32_t first, int32_t count, int32_t chunks) {
  first %= chunks;
  const int32_t until_end = std::min(count, chunks - first);
  RangeList ranges;
  if (until_end > 0) ranges.push_back({space, first, until_end});
  if (count > until_end) ranges.push_back({space, 0, count - until_end});
  return ranges;
}

int32_t largest_fan_out(
    int32_t ranks, const std::function<std::vector<Step>(int32_t ranks, int32_t rank)>& steps) {
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

int32_t remembered(int32_t (*fan_out)(int32_t radix, int32_t ranks), int32_t radix, int32_t ranks) {
  using Question = std::tuple<int32_t (*)(int32_t, int32_t), int32_t, int32_t>;
  thread_local std::pair<Question, int32_t> last;
  const Question question(fan_out, radix, ranks);
  if (last.first != question) last = {question, fan_out(radix, ranks)};
  return last.second;
}

void reduce_canonically(int32_t ranks, const std::function<ChunkRange(int32_t)>& of,
                        ChunkRange result, std::vector<Step>& steps) {
  if (ranks == 1) {
    steps.push_back(copy({of(0)}, {result}));
  } else {
    reduce_group(of, 0, ranks, &result, steps);
  }
}

void receive_and_reduce_canonically(int32_t count, const std::function<Contribution(int32_t i)>& of,
                                    const std::function<ChunkRange(int32_t slot)>& slot,
                                    ChunkRange result, std::vector<Step>& steps) {
  Reception{.of = of, .slot = slot, .steps = steps}.reduce_group(0, count, 0, result);
}

int32_t slots_to_reduce(int32_t count) {
  return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(count))) - 1;
}

}  // namespace tutti::algorithms
