// Tests that the rates of flows are max-min fair, and that no link exceeds its capacity.
#include "collectives/simulate/fair_sharing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tutti {
namespace {

using Flow = FairSharing::Flow;

void settle(FairSharing& sharing) {
  sharing.settle([](Flow) {});
}

TEST(FairSharing, ASingleFlowHasTheRateOfItsNarrowestLink) {
  FairSharing sharing({10, 4, 8});
  const Flow flow = sharing.begin(std::vector{0, 1, 2});
  settle(sharing);
  EXPECT_DOUBLE_EQ(sharing.rate(flow), 4);
  EXPECT_DOUBLE_EQ(sharing.used(0), 4);
}

TEST(FairSharing, FlowsShareALinkAndGetItsCapacityBack) {
  FairSharing sharing({12});
  std::vector<Flow> flows;
  for (int i = 0; i < 3; ++i) flows.push_back(sharing.begin(std::vector{0}));
  settle(sharing);
  for (const Flow flow : flows) EXPECT_DOUBLE_EQ(sharing.rate(flow), 4);
  sharing.end(flows[1]);
  settle(sharing);
  EXPECT_DOUBLE_EQ(sharing.rate(flows[0]), 6);
  EXPECT_DOUBLE_EQ(sharing.used(0), 12);
}

TEST(FairSharing, TheCapacityThatASlowFlowLeavesGoesToTheOthers) {
  // The example of Bertsekas and Gallager: one flow uses both links, another one only the first
  // link, and three use only the last link.
  FairSharing sharing({10, 10});
  const Flow both = sharing.begin(std::vector{0, 1});
  const Flow first = sharing.begin(std::vector{0});
  std::vector<Flow> last;
  for (int i = 0; i < 3; ++i) last.push_back(sharing.begin(std::vector{1}));
  settle(sharing);
  EXPECT_DOUBLE_EQ(sharing.rate(both), 2.5);
  EXPECT_DOUBLE_EQ(sharing.rate(first), 7.5);
  for (const Flow flow : last) EXPECT_DOUBLE_EQ(sharing.rate(flow), 2.5);
}

TEST(FairSharing, ReportsEachRateThatChanges) {
  FairSharing sharing({10, 10});
  const Flow a = sharing.begin(std::vector{0});
  const Flow b = sharing.begin(std::vector{1});
  settle(sharing);
  const Flow c = sharing.begin(std::vector{0});
  std::vector<Flow> changed;
  sharing.settle([&](Flow flow) { changed.push_back(flow); });
  EXPECT_TRUE(std::ranges::count(changed, a) == 1);
  EXPECT_TRUE(std::ranges::count(changed, c) == 1);
  EXPECT_EQ(std::ranges::count(changed, b), 0) << "it has another link";
}

TEST(FairSharing, AFlowMayUseALinkTwice) {
  FairSharing sharing({10});
  const Flow twice = sharing.begin(std::vector{0, 0});
  const Flow once = sharing.begin(std::vector{0});
  settle(sharing);
  EXPECT_DOUBLE_EQ(sharing.rate(twice), 10.0 / 3);
  EXPECT_DOUBLE_EQ(sharing.rate(once), 10.0 / 3);
  sharing.end(twice);
  settle(sharing);
  EXPECT_DOUBLE_EQ(sharing.rate(once), 10);
}

// After each of many changes, every flow must have a bottleneck: a full link on which no flow is
// faster. This property defines max-min fairness and determines the rates uniquely.
TEST(FairSharing, EveryFlowHasABottleneckAfterAnyChange) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 30; ++round) {
    std::vector<double> capacities;
    const int links = 2 + below(12);
    for (int i = 0; i < links; ++i) capacities.push_back(1 + below(9));
    FairSharing sharing(capacities);
    std::vector<std::pair<Flow, std::vector<int>>> flows;
    for (int change = 0; change < 60; ++change) {
      for (int i = below(4); i >= 0; --i) {
        if (!flows.empty() && below(3) == 0) {
          const size_t gone = static_cast<size_t>(below(static_cast<int>(flows.size())));
          sharing.end(flows[gone].first);
          flows.erase(flows.begin() + static_cast<ptrdiff_t>(gone));
        }
      }
      for (int i = below(4); i >= 0; --i) {
        std::vector<int> way;
        for (int k = below(4); k >= 0; --k) way.push_back(below(links));
        flows.emplace_back(sharing.begin(way), way);
      }
      settle(sharing);
      std::vector<double> used(capacities.size(), 0);
      std::vector<double> quickest(capacities.size(), 0);
      for (const auto& [flow, way] : flows) {
        for (const int link : way) {
          used[link] += sharing.rate(flow);
          quickest[link] = std::max(quickest[link], sharing.rate(flow));
        }
      }
      for (int link = 0; link < links; ++link) {
        ASSERT_LE(used[link], capacities[link] * (1 + 1e-6));
        ASSERT_NEAR(used[link], sharing.used(link), 1e-6);
      }
      for (const auto& [flow, way] : flows) {
        const bool has_bottleneck = std::ranges::any_of(way, [&](int link) {
          return used[link] > capacities[link] * (1 - 1e-6) &&
                 sharing.rate(flow) > quickest[link] * (1 - 1e-6);
        });
        ASSERT_TRUE(has_bottleneck) << "round " << round << ", change " << change;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
