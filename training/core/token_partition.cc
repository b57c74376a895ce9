#include "training/core/token_partition.h"

#include <algorithm>
#include <numeric>

namespace tutti::training {
namespace {

// Maximum of a rank's area or token count relative to the mean; if it is exceeded, smaller blocks
// are tried.
constexpr double kEven = 1.02;

int64_t count_of(std::span<const Share> ranges) {
  int64_t count = 0;
  for (const Share& range : ranges) count += range.count;
  return count;
}

struct BlockPartition {
  std::vector<std::vector<Share>> ranges;  // by rank: its ranges, ascending
  bool is_even = false;
};

// Cuts the tokens into blocks of `block_size` and gives each rank the same number of them: in order
// of decreasing area, each block goes to the rank with the smallest area so far. areas[i] is the
// area of all tokens before token i.
BlockPartition partition_blocks(std::span<const int64_t> areas, int64_t block_size, int ranks) {
  const int64_t tokens = std::ssize(areas) - 1;
  const int64_t blocks = (tokens + block_size - 1) / block_size;
  const auto block_at = [&](int64_t block) {
    const int64_t first = block * block_size;
    return Share{first, std::min(block_size, tokens - first)};
  };
  const auto area_of = [&](int64_t block) {
    const Share its = block_at(block);
    return areas[static_cast<size_t>(its.first + its.count)] -
           areas[static_cast<size_t>(its.first)];
  };
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), area_of);
  struct Load {
    int64_t area = 0;
    std::vector<int64_t> blocks;
  };
  std::vector<Load> loads(static_cast<size_t>(ranks));
  const int64_t most_blocks = (blocks + ranks - 1) / ranks;
  for (const int64_t block : order) {
    Load* least = nullptr;
    for (Load& load : loads) {
      if (std::ssize(load.blocks) == most_blocks) continue;
      if (least == nullptr || load.area < least->area) least = &load;
    }
    least->area += area_of(block);
    least->blocks.push_back(block);
  }
  BlockPartition partition;
  int64_t largest = 0;
  for (Load& load : loads) {
    largest = std::max(largest, load.area);
    std::ranges::sort(load.blocks);
    std::vector<Share>& ranges = partition.ranges.emplace_back();
    for (const int64_t block : load.blocks) {
      const Share its = block_at(block);
      if (!ranges.empty() && ranges.back().first + ranges.back().count == its.first) {
        ranges.back().count += its.count;
      } else {
        ranges.push_back(its);
      }
    }
  }
  const auto is_even = [&](int64_t most, int64_t all) {
    return static_cast<double>(most) * ranks <= kEven * static_cast<double>(all);
  };
  partition.is_even = is_even(largest, areas.back()) && is_even(most_blocks * block_size, tokens);
  return partition;
}

// Returns the range of rows from the smallest start to the largest end, of all queries that attend
// to at least one row.
Share seen_rows(std::span<const int32_t> starts, std::span<const int32_t> ends) {
  int64_t first = 0, end = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i] >= ends[i]) continue;
    first = end == 0 ? starts[i] : std::min<int64_t>(first, starts[i]);
    end = std::max<int64_t>(end, ends[i]);
  }
  return {first, end - first};
}

}  // namespace

int64_t TokenMask::first_seen(int64_t token) const {
  const int64_t position = token % positions;
  int64_t first = document_starts.empty() ? 0 : document_starts[static_cast<size_t>(token)];
  if (window > 0) first = std::max(first, position + 1 - window);
  return token - position + first;
}

std::vector<std::vector<Share>> partition_tokens(const TokenMask& mask, int ranks) {
  std::vector<int64_t> areas = {0};
  for (int64_t token = 0; token < mask.tokens(); ++token) {
    areas.push_back(areas.back() + mask.area(token));
  }
  for (int64_t of_a_rank = 2;; of_a_rank *= 2) {
    const int64_t blocks = ranks * of_a_rank;
    const int64_t block_size = (mask.tokens() + blocks - 1) / blocks;
    BlockPartition partition = partition_blocks(areas, block_size, ranks);
    if (partition.is_even || block_size <= 1) return std::move(partition.ranges);
  }
}

TokenPartition::TokenPartition(const TokenMask& mask, int rank, int ranks)
    : rank_(rank),
      document_starts_(mask.document_starts.begin(), mask.document_starts.end()),
      mask_(mask) {
  mask_.document_starts = document_starts_;
  for (std::vector<Share>& ranges : partition_tokens(mask, ranks)) {
    const int64_t count = count_of(ranges);
    of_rank_.push_back({.ranges = std::move(ranges), .count = count});
  }
  // For each token: count of rows of `keys` before it.
  std::vector<int32_t> before(static_cast<size_t>(mask.tokens()) + 1);
  const auto count_before = [&](const OfRank& keys) {
    std::ranges::fill(before, 0);
    for (const Share& range : keys.ranges) {
      std::fill_n(before.begin() + range.first + 1, range.count, 1);
    }
    std::partial_sum(before.begin(), before.end(), before.begin());
  };
  const auto add_bounds = [&](const OfRank& queries, std::vector<int32_t>& starts,
                              std::vector<int32_t>& ends) {
    for (const Share& range : queries.ranges) {
      for (int64_t token = range.first; token < range.first + range.count; ++token) {
        starts.push_back(before[static_cast<size_t>(mask.first_seen(token))]);
        ends.push_back(before[static_cast<size_t>(token) + 1]);
      }
    }
  };
  const OfRank& own = at(rank);
  for (OfRank& other : of_rank_) {
    count_before(other);
    add_bounds(own, other.starts, other.ends);
    other.seen_of = seen_rows(other.starts, other.ends);
    for (std::vector<int32_t>* bounds : {&other.starts, &other.ends}) {
      for (int32_t& bound : *bounds) bound -= static_cast<int32_t>(other.seen_of.first);
    }
  }
  count_before(own);
  for (OfRank& other : of_rank_) {
    std::vector<int32_t> starts, ends;
    add_bounds(other, starts, ends);
    other.seen_by = seen_rows(starts, ends);
  }
}

int64_t TokenPartition::most() const {
  int64_t most = 0;
  for (const OfRank& rank : of_rank_) most = std::max(most, rank.count);
  return most;
}

}  // namespace tutti::training
