#include "training/parallel/averaging/peers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <set>
#include <vector>

namespace tutti::training {
namespace {

constexpr std::array kSizes = {1, 2, 3, 4, 5, 7, 8, 16};

size_t at(int rank) { return static_cast<size_t>(rank); }

// In each exchange, each rank receives from one rank. After log2(ranks) exchanges, it has
// contributions of all ranks.
TEST(Peers, ExponentialPeersReachAllRanks) {
  for (const int ranks : kSizes) {
    std::vector<std::set<int>> known(at(ranks));
    for (int rank = 0; rank < ranks; ++rank) known[at(rank)] = {rank};
    for (int exchange = 0, span = 1; span < ranks; ++exchange, span *= 2) {
      const std::vector<int> targets = exponential_targets(ranks, exchange);
      EXPECT_EQ(std::set(targets.begin(), targets.end()).size(), targets.size());
      const std::vector<std::set<int>> before = known;
      for (int rank = 0; rank < ranks; ++rank) {
        known[at(targets[at(rank)])].insert(before[at(rank)].begin(), before[at(rank)].end());
      }
    }
    for (const std::set<int>& some : known) EXPECT_EQ(some.size(), at(ranks));
  }
}

TEST(Peers, RandomTargetsAreOtherRanks) {
  std::set<int> receivers_of_one;
  for (const int ranks : kSizes) {
    for (int exchange = 0; exchange < 50; ++exchange) {
      const std::vector<int> targets = random_targets(ranks, 7, exchange);
      ASSERT_EQ(targets.size(), at(ranks));
      for (int rank = 0; rank < ranks && ranks > 1; ++rank) {
        EXPECT_NE(targets[at(rank)], rank);
        EXPECT_TRUE(targets[at(rank)] >= 0 && targets[at(rank)] < ranks);
      }
      if (ranks == 5) receivers_of_one.insert(targets[2]);
    }
  }
  EXPECT_EQ(receivers_of_one, (std::set{0, 1, 3, 4}));
}

TEST(Peers, PairsAreMutual) {
  std::set<int> partners_of_one;
  for (const int ranks : kSizes) {
    for (int exchange = 0; exchange < 50; ++exchange) {
      const std::vector<int> partners = random_pairs(ranks, 7, exchange);
      int alone = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(partners[at(partners[at(rank)])], rank);
        alone += partners[at(rank)] == rank ? 1 : 0;
      }
      EXPECT_EQ(alone, ranks % 2);
      if (ranks == 4) partners_of_one.insert(partners[2]);
    }
  }
  EXPECT_EQ(partners_of_one, (std::set{0, 1, 3}));
}

TEST(Peers, OtherSeedsAndExchangesHaveOtherPeers) {
  EXPECT_EQ(random_pairs(16, 1, 1), random_pairs(16, 1, 1));
  EXPECT_NE(random_pairs(16, 1, 1), random_pairs(16, 1, 2));
  EXPECT_NE(random_pairs(16, 1, 1), random_pairs(16, 2, 1));
}

}  // namespace
}  // namespace tutti::training
