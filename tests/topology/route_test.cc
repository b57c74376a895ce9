#include "topology/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/graph_text.h"

namespace tutti {
namespace {

// Returns a machine with two sockets. Each has a switch with two GPUs and a card. Below the first
// switch there is a second one.
const Graph& machine() {
  static const Graph graph = parse_graph_text(R"(
node numa0 numa_node
node numa1 numa_node
node switch0 pci_switch
node switch1 pci_switch
node deep pci_switch
node gpu0 gpu
node gpu1 gpu
node gpu2 gpu
node gpu3 gpu
node card0 nic
node card1 nic
node alone gpu
node net network_switch
node far gpu host=1
node far_card nic host=1
link numa0 numa1 system 10GB/s 0.5us
link numa0 switch0 pci 24GB/s 0.3us
link numa1 switch1 pci 24GB/s 0.3us
link switch0 deep pci 24GB/s 0.3us
link gpu0 switch0 pci 24GB/s 0.3us
link gpu1 deep pci 12GB/s 0.3us
link gpu2 switch1 pci 24GB/s 0.3us
link gpu3 switch1 pci 24GB/s 0.3us
link card0 switch0 pci 12GB/s 0.3us
link card1 switch1 pci 12GB/s 0.3us
link gpu2 gpu3 nvlink 2x20GB/s 0.5us
link card0 net network 100Gbit/s 1us
link card1 net network 100Gbit/s 1us
link far far_card pci 12GB/s 0.3us
link far_card net network 100Gbit/s 1us
)",
                                              "machine");
  return graph;
}

int node(const std::string& name) {
  for (size_t i = 0; i < machine().nodes().size(); ++i) {
    if (machine().nodes()[i].name == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << "there is no node " << name;
  return -1;
}

Route way(const std::string& from, const std::string& to) {
  return route(machine(), node(from), node(to));
}

TEST(Route, ClassifiesPathsBetweenNodes) {
  EXPECT_EQ(way("gpu0", "gpu0").type, PathType::LOC);
  EXPECT_EQ(way("gpu2", "gpu3").type, PathType::NVL);
  EXPECT_EQ(way("gpu0", "card0").type, PathType::PIX);
  EXPECT_EQ(way("gpu0", "gpu1").type, PathType::PXB);
  EXPECT_EQ(way("gpu0", "numa0").type, PathType::PIX);
  EXPECT_EQ(way("gpu0", "gpu2").type, PathType::SYS);
  EXPECT_EQ(way("gpu0", "far").type, PathType::NET);
  EXPECT_EQ(way("gpu0", "alone").type, PathType::DIS);
}

TEST(Route, PrefersTheFewestLinksThenTheWidest) {
  const Route direct = way("gpu2", "gpu3");
  EXPECT_EQ(direct.arcs.size(), 1u);
  EXPECT_DOUBLE_EQ(direct.GBps, 40);
  const Route across = way("gpu0", "gpu2");
  EXPECT_EQ(across.arcs.size(), 5u);
  EXPECT_DOUBLE_EQ(across.GBps, 10);
  EXPECT_DOUBLE_EQ(across.latency_us, 4 * 0.3 + 0.5);
}

TEST(Route, StaysOnTheHostIfBothEndsAreOnIt) {
  // A path over the network between the two cards would have the same length.
  for (const Arc arc : way("card0", "card1").arcs) {
    EXPECT_NE(machine().link_of(arc).kind, LinkClass::network);
  }
}

TEST(Route, GoesThroughNoGpu) {
  const Graph line = parse_graph_text(
      "node a gpu\nnode b gpu\nnode c gpu\nlink a b nvlink 20GB/s\nlink b c nvlink 20GB/s\n",
      "line");
  EXPECT_EQ(route(line, 0, 2).type, PathType::DIS);
  EXPECT_EQ(route(line, 0, 1).type, PathType::NVL);
}

TEST(Route, ArcsOfARouteAreConnected) {
  const Route across = way("gpu1", "far");
  int at = node("gpu1");
  for (const Arc arc : across.arcs) {
    EXPECT_EQ(machine().tail(arc), at);
    at = machine().head(arc);
  }
  EXPECT_EQ(at, node("far"));
}

}  // namespace
}  // namespace tutti
