#include "topology/cluster_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topology/route.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

// Returns a host with two cores and a card. The card names its network.
Graph host_with_card() {
  Graph graph;
  const int numa = graph.add({.kind = NodeKind::numa_node, .number = 0, .name = "numa_node0"});
  for (int core = 0; core < 2; ++core) {
    const int node = graph.add({.kind = NodeKind::core, .number = core, .name = "core"});
    graph.connect({node, numa, LinkClass::memory, 12, 0.1});
  }
  const int card = graph.add({.kind = NodeKind::nic, .number = 0, .name = "eth0"});
  const int network =
      graph.add({.kind = NodeKind::network_switch, .host = -1, .number = 0, .name = "elsewhere"});
  graph.connect({numa, card, LinkClass::pci, 12, 0.3});
  graph.connect({card, network, LinkClass::network, 10, 1});
  return graph;
}

std::vector<std::string> names_between(const Graph& graph, int from, int to) {
  std::vector<std::string> names;
  for (const Arc arc : route(graph, from, to).arcs)
    names.push_back(graph.node(graph.head(arc)).name);
  return names;
}

TEST(ClusterGraph, HasEachHostBelowTheSwitchesOfItsRack) {
  const std::vector<HostInCluster> hosts = {{"a", "row0.rack0", host_with_card()},
                                            {"b", "row0.rack1", host_with_card()},
                                            {"c", "row1.rack0", host_with_card()},
                                            {"d", "row0.rack0", host_with_card()}};
  const Graph graph = cluster_graph(hosts);
  EXPECT_EQ(graph.hosts(), 4);
  const std::vector<int> ranks = graph.rank_nodes();
  ASSERT_EQ(ranks.size(), 8u);
  EXPECT_THAT(
      names_between(graph, ranks[0], ranks[6]),
      ElementsAre("a.numa_node0", "a.eth0", "row0.rack0", "d.eth0", "d.numa_node0", "d.core"));
  EXPECT_THAT(names_between(graph, ranks[0], ranks[2]),
              ElementsAre("a.numa_node0", "a.eth0", "row0.rack0", "row0", "row0.rack1", "b.eth0",
                          "b.numa_node0", "b.core"));
  EXPECT_THAT(names_between(graph, ranks[0], ranks[4]),
              ElementsAre("a.numa_node0", "a.eth0", "row0.rack0", "row0", "network", "row1",
                          "row1.rack0", "c.eth0", "c.numa_node0", "c.core"));
  EXPECT_DOUBLE_EQ(route(graph, ranks[0], ranks[4]).GBps, 10) << "switches are not what bounds it";
}

TEST(ClusterGraph, IncludesHostsWithoutACard) {
  Graph bare;
  bare.add({.kind = NodeKind::core, .number = 0, .name = "core0"});
  const std::vector<HostInCluster> hosts = {{"a", "", bare}, {"b", "", bare}};
  const Graph graph = cluster_graph(hosts);
  EXPECT_THAT(names_between(graph, graph.rank_nodes()[0], graph.rank_nodes()[1]),
              ElementsAre("network", "b.core0"));
}

TEST(ClusterGraph, OneHostYieldsItsOwnGraph) {
  const std::vector<HostInCluster> hosts = {{"a", "", host_with_card()}};
  const Graph graph = cluster_graph(hosts);
  EXPECT_EQ(graph.hosts(), 1);
  EXPECT_EQ(graph.node(graph.rank_nodes()[0]).name, "core");
}

}  // namespace
}  // namespace tutti
