#include "topology/measured_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/route.h"

namespace tutti {
namespace {

using ::testing::SizeIs;

TEST(MeasuredGraph, OneHostHasALinkForEachRank) {
  const Graph graph = measured_graph({"a", "a", "a"}, {{0, 1, 0.4, 5},
                                                       {1, 0, 0.4, 6},
                                                       {0, 2, 0.6, 3},
                                                       {2, 0, 0.6, 3},
                                                       {1, 2, 0.5, 4},
                                                       {2, 1, 0.5, 4}});
  ASSERT_THAT(graph.rank_nodes(), SizeIs(3));
  const Route near = route(graph, graph.rank_nodes()[0], graph.rank_nodes()[1]);
  EXPECT_DOUBLE_EQ(near.GBps, 6);
  EXPECT_DOUBLE_EQ(near.latency_us, 0.4);
  EXPECT_DOUBLE_EQ(route(graph, graph.rank_nodes()[0], graph.rank_nodes()[2]).GBps, 4);
}

TEST(MeasuredGraph, TwoHostsHaveTheirCards) {
  const Graph graph = measured_graph(
      {"a", "b", "a"}, {{0, 2, 1, 5}, {2, 0, 1, 5}, {0, 1, 21, 0.05}, {1, 0, 21, 0.04}});
  EXPECT_EQ(graph.hosts(), 2);
  const Route far = route(graph, graph.rank_nodes()[0], graph.rank_nodes()[2]);
  EXPECT_EQ(far.type, PathType::NET);
  EXPECT_DOUBLE_EQ(far.GBps, 0.05);
  EXPECT_NEAR(far.latency_us, 21, 1);
}

}  // namespace
}  // namespace tutti
