#include "bench/pair_costs.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::bench {
namespace {

const std::vector<std::string> kHosts = {"a", "b", "a", "b"};

TEST(PairCosts, RanksShareTheCard) {
  CostModel model = CostModel::defaults();
  const CostModel before = model;
  const std::vector<MeasuredPair> alone = {{0, 1, 50, 1.0}, {1, 0, 50, 0.9}, {2, 3, 52, 1.0},
                                           {3, 2, 48, 0.8}, {0, 2, 2, 5},    {2, 0, 2, 5}};
  const std::vector<MeasuredPair> together = {
      {0, 1, 60, 0.7}, {1, 0, 60, 0.6}, {2, 3, 60, 0.7}, {3, 2, 60, 0.6}};
  learn_from_pairs(kHosts, alone, together, PathClass::tcp, model);
  // Host b sends 0.6 + 0.6 GB/s.
  EXPECT_DOUBLE_EQ(model.tcp.wire, 1e-9 / 1.2);
  EXPECT_DOUBLE_EQ(model.tcp.latency, 50e-6 - model.tcp.send - model.tcp.recv);
  EXPECT_DOUBLE_EQ(model.shm.latency, 2e-6 - model.shm.send - model.shm.recv);
  EXPECT_EQ(model.tcp.send, before.tcp.send);
  EXPECT_EQ(model.shm.wire, before.shm.wire);
  EXPECT_FALSE(model.ucx);
}

TEST(PairCosts, OneHostLeavesTheNetworkUnchanged) {
  CostModel model = CostModel::defaults();
  const LinkCosts before = model.tcp;
  learn_from_pairs({"a", "a"}, {{0, 1, 0.001, 9}, {1, 0, 0.001, 9}}, {}, PathClass::tcp, model);
  EXPECT_EQ(model.shm.latency, 0) << "quicker than the processors' part: no less than nothing";
  EXPECT_EQ(model.tcp.latency, before.latency);
  EXPECT_EQ(model.tcp.wire, before.wire);
}

TEST(PairCosts, AFabricGetsItsOwnCosts) {
  CostModel model = CostModel::defaults();
  const double tcp = model.tcp.wire;
  learn_from_pairs({"a", "b"}, {{0, 1, 3, 12}, {1, 0, 3, 12}}, {}, PathClass::ucx, model);
  ASSERT_TRUE(model.ucx);
  EXPECT_DOUBLE_EQ(model.ucx->wire, 1e-9 / 12);
  EXPECT_EQ(model.tcp.wire, tcp);
}

}  // namespace
}  // namespace tutti::bench
