// The choice of algorithms.
#include "collectives/planner.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tutti {
namespace {

std::string_view chosen(int ranks, uint64_t bytes) {
  return choose_algorithm(Collective::all_reduce, ranks, bytes).name;
}

TEST(Planner, TakesFewMessagesForSmallAndLittleVolumeForLargeCalls) {
  for (const int ranks : {2, 3, 4, 5, 8, 16, 33, 64}) {
    EXPECT_EQ(chosen(ranks, 8), "recursive_doubling") << ranks << " ranks";
    EXPECT_EQ(chosen(ranks, uint64_t{1} << 30), "ring") << ranks << " ranks";
  }
  for (const int ranks : {8, 16, 64}) {
    EXPECT_EQ(chosen(ranks, 64 << 10), "double_binary_tree") << ranks << " ranks";
  }
}

TEST(Planner, EveryCallHasAnAlgorithm) {
  for (const Collective collective : kCollectivesWithAlgorithms) {
    for (const int ranks : {1, 2, 3, 1000}) {
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40}) {
        const Algorithm& algorithm = choose_algorithm(collective, ranks, bytes);
        EXPECT_EQ(algorithm.collective, collective);
        EXPECT_GE(algorithm.grade, Grade::same_bits);
      }
    }
  }
}

// However cheap, what gives different bits on different ranks is not for "auto".
TEST(Planner, NeverTakesWhatIsOnlyCorrect) {
  Algorithm free = require_algorithm(Collective::all_reduce, "ring");
  free.name = "free";
  free.grade = Grade::correct;
  free.cost = [](int32_t) { return Cost{}; };
  std::vector<Algorithm> candidates(all_algorithms().begin(), all_algorithms().end());
  candidates.insert(candidates.begin(), free);
  const auto take = [&](Grade at_least) {
    return cheapest(candidates, Collective::all_reduce, 4, 1 << 20, at_least);
  };
  EXPECT_EQ(take(Grade::correct)->name, "free");
  EXPECT_EQ(take(Grade::same_bits)->name, chosen(4, 1 << 20));
  EXPECT_EQ(take(Grade::canonical)->grade, Grade::canonical);
  candidates.resize(1);
  EXPECT_EQ(take(Grade::same_bits), nullptr);
}

TEST(Planner, TakesOnlyWhatRunsOnSoManyRanks) {
  Algorithm even = require_algorithm(Collective::all_reduce, "ring");
  even.cost = [](int32_t) { return Cost{}; };
  even.supports = [](int32_t ranks) {
    return std::string(ranks % 2 == 0 ? "" : "it needs an even number of ranks");
  };
  const std::vector<Algorithm> candidates = {even};
  const auto take = [&](int ranks) {
    return cheapest(candidates, Collective::all_reduce, ranks, 8, Grade::same_bits);
  };
  EXPECT_EQ(take(4), candidates.data());
  EXPECT_EQ(take(5), nullptr);
}

}  // namespace
}  // namespace tutti
