#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "training/pipeline/partition.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> cut(const std::vector<double>& costs, int chunks) {
  return balanced_cut(costs, chunks);
}

std::vector<double> chunk_costs(const std::vector<double>& costs, std::vector<int> firsts) {
  firsts.push_back(static_cast<int>(costs.size()));
  std::vector<double> sums;
  for (size_t c = 0; c + 1 < firsts.size(); ++c) {
    sums.push_back(std::accumulate(costs.begin() + firsts[c], costs.begin() + firsts[c + 1], 0.0));
  }
  return sums;
}

double slowest(const std::vector<double>& costs, const std::vector<int>& firsts) {
  return std::ranges::max(chunk_costs(costs, firsts));
}

double squares(const std::vector<double>& costs, const std::vector<int>& firsts) {
  double sum = 0;
  for (const double cost : chunk_costs(costs, firsts)) sum += cost * cost;
  return sum;
}

// Calls visit(firsts) for every possible cut.
void each_cut(int units, int chunks, std::vector<int>& firsts, const auto& visit) {
  if (static_cast<int>(firsts.size()) == chunks) return visit(firsts);
  for (int first = firsts.back() + 1; first < units; ++first) {
    firsts.push_back(first);
    each_cut(units, chunks, firsts, visit);
    firsts.pop_back();
  }
}

TEST(BalancedCut, EqualUnitsAreCutEvenly) {
  const std::vector<double> ones(12, 1.0);
  EXPECT_THAT(cut(ones, 1), ElementsAre(0));
  EXPECT_THAT(cut(ones, 4), ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(cut(ones, 12), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(cut(std::vector<double>(10, 1.0), 4), ElementsAre(0, 2, 4, 7)) << "as even as can be";
}

TEST(BalancedCut, FollowsTheCosts) {
  EXPECT_THAT(cut({1, 1, 1, 3, 1}, 3), ElementsAre(0, 3, 4));
  EXPECT_THAT(cut({9, 1, 1, 1, 1}, 2), ElementsAre(0, 1));
  EXPECT_THAT(cut({1, 1, 1, 1, 9}, 2), ElementsAre(0, 4));
  EXPECT_THAT(cut({0, 4, 4, 4, 4, 2}, 2), ElementsAre(0, 3)) << "an embedding, blocks, a head";
  EXPECT_THAT(cut({0, 0, 0}, 2), ElementsAre(0, 1));
}

TEST(BalancedCut, NoCutIsBetter) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int units = 1 + static_cast<int>(random() % 9);
    const int chunks = 1 + static_cast<int>(random() % static_cast<unsigned>(units));
    std::vector<double> costs(static_cast<size_t>(units));
    for (double& cost : costs) cost = static_cast<double>(random() % 6);
    const std::vector<int> found = cut(costs, chunks);
    ASSERT_EQ(found.size(), static_cast<size_t>(chunks));
    EXPECT_EQ(found.front(), 0);
    EXPECT_TRUE(std::ranges::adjacent_find(found, std::greater_equal{}) == found.end());
    std::vector<int> firsts = {0};
    each_cut(units, chunks, firsts, [&](const std::vector<int>& other) {
      const double difference = slowest(costs, other) - slowest(costs, found);
      EXPECT_GE(difference, 0);
      if (difference == 0) {
        EXPECT_GE(squares(costs, other), squares(costs, found));
      }
    });
  }
}

TEST(BalancedCut, RefusesImpossibleCuts) {
  const auto message = [](const std::vector<double>& costs, int chunks) -> std::string {
    try {
      cut(costs, chunks);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({1, 1}, 3),
              AllOf(HasSubstr("2 units"), HasSubstr("cannot be divided into 3 chunks")));
  EXPECT_THAT(message({1, 1}, 0), HasSubstr("into 0 chunks"));
  EXPECT_THAT(message({}, 1), HasSubstr("0 units"));
  EXPECT_THAT(message({1, -1}, 1), HasSubstr("unit 1 is -1"));
  EXPECT_THAT(message({std::numeric_limits<double>::quiet_NaN()}, 1), HasSubstr("unit 0"));
}

}  // namespace
}  // namespace tutti::training::pipeline
