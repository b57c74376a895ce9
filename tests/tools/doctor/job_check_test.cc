// Tests which pairs of ranks the doctor measures, and in which rounds.
#include "tools/doctor/job_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tutti::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Pairs = std::multiset<std::pair<int, int>>;

Pairs all_of(const std::vector<Round>& rounds) {
  Pairs pairs;
  for (const Round& round : rounds) pairs.insert(round.begin(), round.end());
  return pairs;
}

TEST(RoundsOfPairs, HaveEachRankInOnePairOfARound) {
  for (const std::vector<int>& dealt :
       {std::vector{1}, {2}, {3}, {8}, {1, 1}, {3, 2}, {4, 4, 4}, {1, 5, 2, 2}}) {
    for (const Round& round : rounds_of_pairs(dealt)) {
      std::set<int> busy;
      for (const auto& [low, high] : round) {
        EXPECT_LT(low, high);
        EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second);
      }
    }
  }
}

TEST(RoundsOfPairs, ContainAllPairsWithinAHostAndOneForEachTwoHosts) {
  EXPECT_THAT(all_of(rounds_of_pairs({1})), IsEmpty());
  EXPECT_THAT(all_of(rounds_of_pairs({4})),
              UnorderedElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(0, 3),
                                   std::pair(1, 2), std::pair(1, 3), std::pair(2, 3)));
  EXPECT_THAT(all_of(rounds_of_pairs({2, 1, 2})),
              UnorderedElementsAre(std::pair(0, 1), std::pair(3, 4), std::pair(0, 2),
                                   std::pair(0, 3), std::pair(2, 3)));
}

TEST(RoundsOfPairs, ContainASampleOfManyRanks) {
  EXPECT_LE(rounds_of_pairs({1000}).size(), 64u);
  EXPECT_LE(rounds_of_pairs(std::vector<int>(1000, 1)).size(), 64u);
}

TEST(WithRanks, DealsAsTheLauncherDoes) {
  const Host a{.name = "a"};
  const Host b{.name = "b"};
  EXPECT_THAT(ranks_of(with_ranks(5, {a, b})), ElementsAre(3, 2));
  EXPECT_THAT(with_ranks(5, {{"a", 4}, {"b", 4}, {"c", 4}}),
              ElementsAre(Host{"a", 4}, Host{"b", 1}))
      << "c is not needed";
  EXPECT_THAT(ranks_of(with_ranks(4, {})), ElementsAre(4));
}

}  // namespace
}  // namespace tutti::tool
