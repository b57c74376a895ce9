// Tests which tokens each rank has, and to which keys of other ranks its queries attend.
#include "training/core/token_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/text.h"

namespace tutti::training {
namespace {

std::vector<int64_t> tokens_of(const std::vector<Share>& ranges) {
  std::vector<int64_t> tokens;
  for (const Share& range : ranges) {
    for (int64_t i = 0; i < range.count; ++i) tokens.push_back(range.first + i);
  }
  return tokens;
}

// Packs each sample with consecutive documents of up to `longest` tokens. Returns, for each token,
// the first token of its document.
std::vector<int32_t> random_packing(std::mt19937& random, int64_t samples, int64_t positions,
                                    int64_t longest) {
  std::vector<int32_t> starts;
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t at = 0; at < positions;) {
      const int64_t all = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest));
      const int64_t length = std::min(all, positions - at);
      starts.insert(starts.end(), static_cast<size_t>(length), static_cast<int32_t>(at));
      at += length;
    }
  }
  return starts;
}

TEST(TokenPartition, EachRankGetsAPieceFromBothEndsOfACausalSample) {
  const auto partition = partition_tokens({.samples = 1, .positions = 64}, 4);
  EXPECT_EQ(tokens_of(partition[0]), tokens_of({{0, 8}, {56, 8}}));
  EXPECT_EQ(tokens_of(partition[1]), tokens_of({{8, 8}, {48, 8}}));
  EXPECT_EQ(tokens_of(partition[2]), tokens_of({{16, 8}, {40, 8}}));
  EXPECT_EQ(tokens_of(partition[3]), tokens_of({{24, 16}}));
}

TEST(TokenPartition, WholeSamplesStayTogetherIfPossible) {
  const auto partition = partition_tokens({.samples = 4, .positions = 10}, 2);
  EXPECT_EQ(tokens_of(partition[0]), tokens_of({{0, 10}, {20, 10}}));
}

// The area of a rank is its number of query-key pairs. If each rank has at least 64 tokens, ranks
// have equally many tokens, and the largest area is at most 3% above the mean.
TEST(TokenPartition, RanksGetEqualPartsOfAnyMask) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 1000; ++trial) {
    const int ranks = 2 + static_cast<int>(random() % 7);
    const int64_t positions = ranks * 64 + static_cast<int64_t>(random() % 400);
    const int64_t longest = trial % 3 == 0 ? 8 : trial % 3 == 1 ? 100 : positions;
    const int64_t samples = 1 + trial % 2;
    const std::vector<int32_t> starts = random_packing(random, samples, positions, longest);
    const TokenMask mask{samples, positions, starts, trial % 5 == 0 ? 30 : 0};
    SCOPED_TRACE(cat("trial ", trial, ": ", ranks, " ranks, ", positions, " positions"));
    std::vector<int64_t> areas, counts;
    std::vector<bool> taken(static_cast<size_t>(mask.tokens()));
    for (const std::vector<Share>& ranges : partition_tokens(mask, ranks)) {
      const std::vector<int64_t> tokens = tokens_of(ranges);
      EXPECT_TRUE(std::ranges::is_sorted(tokens));
      counts.push_back(std::ssize(tokens));
      areas.push_back(0);
      for (const int64_t token : tokens) {
        areas.back() += mask.area(token);
        EXPECT_FALSE(taken[static_cast<size_t>(token)]) << "two ranks have " << token;
        taken[static_cast<size_t>(token)] = true;
      }
    }
    EXPECT_EQ(std::ranges::count(taken, true), mask.tokens());
    double all = 0;
    for (const int64_t area : areas) all += static_cast<double>(area);
    EXPECT_LE(static_cast<double>(std::ranges::max(areas)) * ranks, 1.03 * all);
    EXPECT_LE(static_cast<double>(std::ranges::max(counts)) * ranks,
              1.03 * static_cast<double>(mask.tokens()));
  }
}

// Some samples are shorter than the number of ranks, so that some ranks have no token.
TEST(TokenPartition, QueriesAttendToTheKeysOfTheMask) {
  std::mt19937 random(6);
  for (const int ranks : {1, 2, 3, 5, 7}) {
    for (const int64_t positions : {1, 2, 4, 9, 40, 150}) {
      for (const int64_t window : {0, 1, 6}) {
        const int64_t samples = 1 + static_cast<int64_t>(random() % 3);
        const std::vector<int32_t> starts = random_packing(random, samples, positions, positions);
        const TokenMask mask{samples, positions, starts, window};
        const auto partition = partition_tokens(mask, ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          SCOPED_TRACE(cat("rank ", rank, " of ", ranks, ", ", samples, " x ", positions,
                           ", window ", window));
          const TokenPartition seen(mask, rank, ranks);
          const std::vector<int64_t> queries = tokens_of(partition[static_cast<size_t>(rank)]);
          for (int other = 0; other < ranks; ++other) {
            const std::vector<int64_t> keys = tokens_of(partition[static_cast<size_t>(other)]);
            EXPECT_EQ(seen.count(other), std::ssize(keys));
            const Share needed = seen.seen_of(other);
            EXPECT_EQ(TokenPartition(mask, other, ranks).seen_by(rank).first, needed.first);
            EXPECT_EQ(TokenPartition(mask, other, ranks).seen_by(rank).count, needed.count);
            for (size_t q = 0; q < queries.size(); ++q) {
              for (int64_t key = 0; key < std::ssize(keys); ++key) {
                const int64_t token = keys[static_cast<size_t>(key)];
                const bool sees = token >= mask.first_seen(queries[q]) && token <= queries[q];
                const int64_t at = key - needed.first;
                const bool found = at >= 0 && at < needed.count && at >= seen.starts(other)[q] &&
                                   at < seen.ends(other)[q];
                EXPECT_EQ(found, sees) << queries[q] << " sees " << token;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::training
