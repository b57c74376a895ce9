#include "collectives/algorithms/carriers.h"

#include <algorithm>
#include <optional>

namespace tutti::algorithms {

using Group = NestedGroups::Group;

template <typename Visit>
void Carriers::visit_other_parts(int32_t stage, int32_t rank, const Visit& visit) const {
  const Group all = groups_.group(stage, rank);
  const int32_t own_number = groups_.number(stage, rank);
  const Group own = groups_.part(stage, own_number);
  const auto visit_from = [&](int32_t number, int32_t end) {
    for (; number < end; ++number) visit(own, groups_.part(stage, number));
  };
  visit_from(own_number + 1, groups_.number(stage, all.end() - 1) + 1);
  visit_from(groups_.number(stage, all.first), own_number);
}

std::vector<int32_t> Carriers::carriers(int32_t stage, int32_t rank) const {
  std::vector<int32_t> ranks;
  visit_other_parts(stage, rank, [&](const Group& own, const Group& other) {
    ranks.push_back(other.first + (rank - own.first) % other.size);
  });
  return ranks;
}

std::vector<int32_t> Carriers::charges(int32_t stage, int32_t rank) const {
  std::vector<int32_t> ranks;
  visit_other_parts(stage, rank, [&](const Group& own, const Group& other) {
    for (int32_t i = rank - own.first; i < other.size; i += own.size) {
      ranks.push_back(other.first + i);
    }
  });
  return ranks;
}

std::vector<int32_t> Carriers::blocks(int32_t stage, int32_t rank) const {
  if (stage == 0) return {rank};
  std::vector<int32_t> all = blocks(stage - 1, rank);
  for (const int32_t charge : charges(stage - 1, rank)) {
    const std::vector<int32_t> carried = blocks(stage - 1, charge);
    all.insert(all.end(), carried.begin(), carried.end());
  }
  std::ranges::sort(all);
  return all;
}

namespace {

// Number of blocks that a rank holds at a stage, and its totals over all stages.
struct Count {
  int32_t blocks = 1;
  CarriersLimits total = {};
};

// Adds one stage to the totals. `blocks_of` returns another rank's number of blocks. Returns the
// number of blocks that the rank gains at the stage.
template <typename BlocksOf>
int32_t count_stage(const Carriers& carriers, int32_t stage, int32_t rank,
                    const BlocksOf& blocks_of, Count& count) {
  CarriersLimits& total = count.total;
  const int32_t own = carriers.groups().group(stage + 1, rank).size;
  const int32_t others = carriers.groups().group(stage, rank).size - own;
  int32_t sum = 0;
  for (const int32_t charge : carriers.charges(stage, rank)) {
    const int32_t blocks = blocks_of(charge);
    sum += blocks;
    ++total.charges;
    total.blocks = std::max(total.blocks, blocks);
    total.pairs = std::max(total.pairs, blocks * own);
  }
  total.carriers += static_cast<int32_t>(carriers.carriers(stage, rank).size());
  total.in_transit += others * (count.blocks - 1);
  return sum;
}

// Returns true if the groups of each stage have equal sizes, so that all ranks have equal counts.
bool is_even(const NestedGroups& groups, int32_t ranks) {
  for (int32_t stage = 0; stage <= groups.stages(); ++stage) {
    const int32_t size = groups.group(stage, 0).size;
    for (int32_t first = 0; first < ranks; first += size) {
      if (groups.group(stage, first).size != size) return false;
    }
  }
  return true;
}

CarriersLimits count_limits(const Shape& shape, int32_t levels) {
  const Carriers carriers(NestedGroups(shape, levels));
  const int32_t stages = carriers.groups().stages();
  if (is_even(carriers.groups(), shape.ranks)) {
    Count count;
    for (int32_t stage = 0; stage < stages; ++stage) {
      const auto as_many = [blocks = count.blocks](int32_t) { return blocks; };
      count.blocks += count_stage(carriers, stage, 0, as_many, count);
    }
    return count.total;
  }
  std::vector<Count> counts(static_cast<size_t>(shape.ranks));
  for (int32_t stage = 0; stage < stages; ++stage) {
    const auto blocks_of = [&](int32_t rank) { return counts[static_cast<size_t>(rank)].blocks; };
    std::vector<int32_t> carried;
    for (int32_t rank = 0; rank < shape.ranks; ++rank) {
      carried.push_back(
          count_stage(carriers, stage, rank, blocks_of, counts[static_cast<size_t>(rank)]));
    }
    for (size_t rank = 0; rank < counts.size(); ++rank) counts[rank].blocks += carried[rank];
  }
  CarriersLimits most;
  for (const Count& count : counts) {
    most.carriers = std::max(most.carriers, count.total.carriers);
    most.charges = std::max(most.charges, count.total.charges);
    most.blocks = std::max(most.blocks, count.total.blocks);
    most.pairs = std::max(most.pairs, count.total.pairs);
    most.in_transit = std::max(most.in_transit, count.total.in_transit);
  }
  return most;
}

}  // namespace

CarriersLimits limits_of(const Shape& shape, int32_t levels) {
  struct Answer {
    int32_t ranks;
    int32_t levels;
    Layout layout;
    CarriersLimits limits;
  };
  thread_local std::optional<Answer> last;
  if (!last || last->ranks != shape.ranks || last->levels != levels ||
      last->layout != shape.layout) {
    last = {shape.ranks, levels, shape.layout, count_limits(shape, levels)};
  }
  return last->limits;
}

void append(RangeList& ranges, ChunkRange chunk) {
  if (!ranges.empty()) {
    ChunkRange& last = ranges.back();
    if (last.space == chunk.space && last.first + last.count == chunk.first) {
      last.count += chunk.count;
      return;
    }
  }
  ranges.push_back(chunk);
}

}  // namespace tutti::algorithms
