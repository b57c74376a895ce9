// Tests networks: their sizes, connectivity, the length of paths, files, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/test_data.h"
#include "topology/channels.h"
#include "topology/networks/load_network.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<Network> network(const std::string& description, std::optional<int> ranks = {}) {
  return std::make_unique<Network>(parse_structure(description, ranks));
}

std::vector<Arc> way(Network& network, int from, int to) {
  std::vector<Arc> arcs;
  EXPECT_TRUE(network.route(from, to, arcs)) << from << " to " << to;
  return arcs;
}

// Expects the path to lead from the node of one rank to that of the other, and to visit no node
// twice.
void expect_connected(Network& network, int from, int to) {
  int node = network.node_of(from);
  std::set<int> passed = {node};
  for (const Arc arc : way(network, from, to)) {
    ASSERT_EQ(network.graph().tail(arc), node) << from << " to " << to;
    node = network.graph().head(arc);
    ASSERT_TRUE(passed.insert(node).second) << from << " to " << to;
  }
  ASSERT_EQ(node, network.node_of(to)) << from << " to " << to;
}

void expect_all_connected(Network& network) {
  for (int from = 0; from < network.ranks(); ++from) {
    for (int to = 0; to < network.ranks(); ++to) expect_connected(network, from, to);
  }
}

constexpr const char* kDescriptions[] = {
    "ring:2",
    "ring:7",
    "switch:5",
    "full:6",
    "mesh:3x4",
    "torus:3x4x2",
    "fat-tree:k=4",
    "fat-tree:hosts=13,per-leaf=4,up=3",
    "fat-tree:hosts=6,per-leaf=2,gpus=4",
    "fat-tree:hosts=6,per-leaf=2,gpus=4,nics=2",
    "rail:hosts=5,gpus=3",
    "rail:hosts=6,gpus=2,per-leaf=2",
    "dragonfly:groups=5,routers=2,hosts=3,global=2",
    "switch:4;ring:3;switch:2",
    "switch:3;fat-tree:hosts=4,per-leaf=2",
};

TEST(Networks, EveryRankReachesEveryOther) {
  for (const char* description : kDescriptions) {
    SCOPED_TRACE(description);
    expect_all_connected(*network(description));
  }
}

TEST(Networks, HaveTheSizesOfTheirDescriptions) {
  EXPECT_EQ(network("torus:4x4x4")->ranks(), 64);
  EXPECT_EQ(network("torus:4x4x4")->graph().links().size(), 3u * 64);
  EXPECT_EQ(network("mesh:4x4")->graph().links().size(), 2u * 4 * 3);
  EXPECT_EQ(network("full:6")->graph().links().size(), 15u);
  EXPECT_EQ(network("fat-tree:k=4")->ranks(), 16) << "k^3 / 4";
  EXPECT_EQ(network("fat-tree:k=4")->graph().nodes().size(), 16u + 20) << "5 k^2 / 4 switches";
  EXPECT_EQ(network("dragonfly:groups=9,routers=4,hosts=2,global=2")->ranks(), 72);
  EXPECT_EQ(network("fat-tree:hosts=100,gpus=8")->ranks(), 800);
  EXPECT_EQ(network("ring", 5)->ranks(), 5);
  for (const char* description : {"switch:8;ring", "switch:8;fat-tree", "switch:8;rail"}) {
    EXPECT_EQ(network(description, 64)->ranks(), 64) << description;
  }
}

TEST(Networks, PathsAreAsShortAsPossible) {
  const auto hops = [](const char* description, int from, int to) {
    const auto made = network(description);
    return way(*made, from, to).size();
  };
  EXPECT_EQ(hops("ring:8", 1, 6), 3u) << "the shorter way round";
  EXPECT_EQ(hops("mesh:8x1", 0, 7), 7u);
  EXPECT_EQ(hops("switch:8", 0, 7), 2u);
  EXPECT_EQ(hops("torus:4x4", 0, 15), 2u) << "one step back in each dimension";
  EXPECT_EQ(hops("fat-tree:k=4", 0, 1), 2u) << "over the leaf";
  EXPECT_EQ(hops("fat-tree:k=4", 0, 2), 4u) << "over an aggregation switch of the pod";
  EXPECT_EQ(hops("fat-tree:k=4", 0, 15), 6u) << "over a core switch";
  EXPECT_EQ(hops("fat-tree:hosts=64,gpus=8", 0, 7), 2u) << "inside the host";
}

// Zahavi's property: if all endpoints send to the endpoint at the same distance, no link is used
// twice.
TEST(Networks, ShiftsOfAFatTreeDoNotCollide) {
  for (const char* description : {"fat-tree:k=8", "fat-tree:hosts=32,per-leaf=8,up=8"}) {
    const auto made = network(description);
    for (int distance = 1; distance < made->ranks(); ++distance) {
      std::set<Arc> used;
      for (int rank = 0; rank < made->ranks(); ++rank) {
        for (const Arc arc : way(*made, rank, (rank + distance) % made->ranks())) {
          ASSERT_TRUE(used.insert(arc).second) << description << ", by " << distance;
        }
      }
    }
  }
}

TEST(Networks, AvoidFailedLinks) {
  for (const char* description : {"ring:6", "full:5", "fat-tree:k=4", "torus:3x3",
                                  "dragonfly:groups=5,routers=2,hosts=1,global=2"}) {
    SCOPED_TRACE(description);
    const auto made = network(description);
    const int last = made->ranks() - 1;
    // Links in the middle of a path have alternatives, but the link of a host does not.
    const std::vector<Arc> usual = way(*made, 0, last);
    made->fail(usual[usual.size() / 2] / 2);
    expect_connected(*made, 0, last);
    const std::vector<Arc> other = way(*made, 0, last);
    EXPECT_EQ(std::ranges::count(other, usual[usual.size() / 2]), 0);
  }
}

TEST(Networks, ReportWhenThereIsNoPath) {
  const auto made = network("switch:4");
  for (const int link : made->links_named("host2-switch")) made->fail(link);
  std::vector<Arc> arcs;
  EXPECT_FALSE(made->route(0, 2, arcs));
  EXPECT_TRUE(arcs.empty());
  EXPECT_TRUE(made->route(0, 1, arcs));
}

TEST(Networks, NameLinksByTheirNodes) {
  const auto made = network("fat-tree:hosts=8,per-leaf=4,up=2");
  EXPECT_EQ(made->links_named("leaf0-spine1").size(), 1u);
  EXPECT_EQ(made->links_named("spine1-leaf0"), made->links_named("leaf0-spine1"));
  EXPECT_EQ(made->links_named("spine0").size(), 2u) << "all of a switch";
  EXPECT_EQ(made->links_named("link3"), std::vector{3});
  for (const char* wrong : {"leaf0-leaf1", "nowhere", "link99", ""}) {
    EXPECT_THROW(made->links_named(wrong), Error) << wrong;
  }
}

TEST(Networks, RefuseInvalidDescriptions) {
  for (const char* wrong :
       {"", "rings:8", "ring:0", "ring:x", "ring", "switch:8,speed=3", "switch:8,bandwidth=fast",
        "switch:8,bandwidth=0", "switch:8,latency=-1us", "fat-tree:k=3", "torus:4xx4",
        "fat-tree:hosts=8,gpus=8,nics=3", "dragonfly:groups=99,routers=2,hosts=1,global=1",
        "fat-tree:hosts=4;ring:2", "torus:4096x4096", "switch:8,8"}) {
    EXPECT_THROW(parse_structure(wrong, {}), Error) << wrong;
  }
  try {
    parse_structure("fat-tre:k=4", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean fat-tree"));
  }
}

TEST(Networks, ReadAstraSimsFiles) {
  const auto made = read_network(
      "# two dimensions\ntopology: [ Switch, Ring ]\nnpus_count: [ 8, 4 ]\n"
      "bandwidth: [400, 50 ]  # GB/s\nlatency: [ 936.25, 1000 ]  # ns\n",
      "two.yml");
  EXPECT_EQ(made->ranks(), 32);
  EXPECT_EQ(load_network("mesh:4;ring:8", std::nullopt)->alike_group_size(), 1);
  EXPECT_EQ(load_network("package:2 core:2 pu:1", std::nullopt)->alike_group_size(), 1);
  EXPECT_EQ(made->alike_group_size(), 8);
  const std::vector<Arc> inside = way(*made, 0, 7);
  ASSERT_EQ(inside.size(), 2u);
  EXPECT_DOUBLE_EQ(made->GBps(inside[0]), 400);
  EXPECT_DOUBLE_EQ(made->latency_us(inside[0]), 0.93625);
  const std::vector<Arc> between = way(*made, 0, 8);
  ASSERT_EQ(between.size(), 1u);
  EXPECT_DOUBLE_EQ(made->GBps(between[0]), 50);
}

TEST(Networks, ReadHtsimsFiles) {
  const auto made = read_network(
      "Nodes 8\nTiers 3\nPodsize 4\n\nTier 0\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\n"
      "Downlink_Latency_ns 1000\n\nTier 1\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 4\n"
      "Downlink_Latency_ns 1000\nBundle 1\n\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\n"
      "Downlink_Latency_ns 1000\nBundle 2\n",
      "a.topo");
  EXPECT_EQ(made->ranks(), 8);
  EXPECT_EQ(made->graph().nodes().size(), 8u + 4 + 4 + 4);
  const std::vector<Arc> far = way(*made, 0, 7);
  ASSERT_EQ(far.size(), 6u);
  EXPECT_DOUBLE_EQ(made->GBps(far[0]), 25);
  EXPECT_DOUBLE_EQ(made->GBps(far[2]), 25) << "two links of 100 Gbit/s";
  expect_all_connected(*made);
}

TEST(Networks, ReadNs3sFiles) {
  const auto plain =
      read_network("3 1 2\n0\n0 1 100Gbps 1000ns 0\n0 2 25Gbps 0.001ms 0\n", "t.txt");
  EXPECT_EQ(plain->ranks(), 2);
  const std::vector<Arc> arcs = way(*plain, 0, 1);
  ASSERT_EQ(arcs.size(), 2u);
  EXPECT_DOUBLE_EQ(plain->GBps(arcs[1]), 3.125);
  EXPECT_DOUBLE_EQ(plain->latency_us(arcs[1]), 1);
  // A file of SimAI: two servers, each with two GPUs and an NVSwitch, and one switch between the
  // servers.
  const auto servers = read_network(
      "7 2 2 1 8 H20\n4 5 6\n0 4 900Gbps 25ns 0\n1 4 900Gbps 25ns 0\n2 5 900Gbps 25ns 0\n"
      "3 5 900Gbps 25ns 0\n0 6 200Gbps 1us 0\n1 6 200Gbps 1us 0\n2 6 200Gbps 1us 0\n"
      "3 6 200Gbps 1us 0\n",
      "s.txt");
  EXPECT_EQ(servers->ranks(), 4);
  EXPECT_EQ(servers->alike_group_size(), 2);
  EXPECT_DOUBLE_EQ(servers->GBps(way(*servers, 0, 1)[0]), 112.5) << "the wider of two ways";
  expect_all_connected(*servers);
}

TEST(Networks, ReadSlurmsFiles) {
  const auto made = read_network(
      "# a tree\nSwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7] LinkSpeed=100\n"
      "SwitchName=top Switches=s[0-1]\n",
      "topology.conf");
  EXPECT_EQ(made->ranks(), 8);
  EXPECT_EQ(way(*made, 0, 3).size(), 2u);
  EXPECT_EQ(way(*made, 0, 4).size(), 4u);
}

struct BadFile {
  const char* text;
  const char* line;
  const char* reason;
};

TEST(Networks, RefuseFilesWithLineAndReason) {
  const BadFile kBad[] = {
      {"", "line 1", "empty"},
      {"hello world\n", "line 1", "no known network format"},
      {"topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ tbd ]\nlatency: [ 1 ]\n", "line 3",
       "tbd"},
      {"topology: [ Ring ]\nnpus_count: [ 8, 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", "line 2",
       "2 values for 1"},
      {"topology: [ Star ]\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", "line 1",
       "Star"},
      {"topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\n", "line 3", "latency"},
      {"topology: [ Ring\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", "line 1",
       "bracket"},
      {"Nodes 8\nTiers 2\nTier 0\nRadix_Down 4\n", "line 4", "2 tiers"},
      {"Nodes 8\nTiers 1\nTier 0\nRadix_Down 4\nDownlink_speed_Gbps 1\n", "line 5", "room for 4"},
      {"Nodes 8\nTiers 1\nTier 0\nRadix_Dawn 4\n", "line 4", "Radix_Dawn"},
      {"3 1 2\n0\n0 1 100Gbps 1000ns 0\n", "line 3", "declares 2 links"},
      {"3 1 2\n0\n0 1 100Gbps 1000ns 0\n0 9 100Gbps 1us 0\n", "line 4", "'9'"},
      {"3 1 1\n0\n0 1 quick 1000ns 0\n", "line 3", "quick"},
      {"3 3 1\n0 1 2\n0 1 1Gbps 1ns 0\n", "line 1", "no node remains"},
      {"SwitchName=a Nodes=n[0-3\n", "line 1", "n[0-3"},
      {"SwitchName=a Nodes=n0\nSwitchName=b Switches=c\n", "line 2", "undefined switch c"},
      {"SwitchName=a Nodes=n0\nSwitchName=b Nodes=n0\n", "line 2", "already"},
      {"SwitchName=a Nodes=n0\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n", "line 3",
       "below another one in line 2"},
      {"SwitchName=s Switches=a,a\nSwitchName=a Nodes=n0\n", "line 1", "already"},
      {"SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n0\n", "line 1",
       "below itself"},
  };
  for (const BadFile& bad : kBad) {
    try {
      read_network(bad.text, "the.file");
      ADD_FAILURE() << "was read: " << bad.text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("the.file"), HasSubstr(bad.line), HasSubstr(bad.reason)))
          << bad.text;
    }
  }
}

TEST(Networks, RefuseSizesThatDoNotFitInMemory) {
  for (const char* description :
       {"full:1000000", "torus:65536x65536x65536x65536", "fat-tree:hosts=1000,up=1000000",
        "dragonfly:groups=3,routers=100000,hosts=1,global=100000", "fat-tree:k=8,hosts=1000000"}) {
    EXPECT_THROW((void)load_network(description, std::nullopt), Error) << description;
  }
  EXPECT_THROW((void)network("ring:1")->links_named("x"), Error);
}

// In a line, a rank in the middle differs from a rank at an end.
TEST(Networks, RanksThatAreLinkedDirectlyAreNotAlike) {
  Graph graph;
  for (int i = 0; i < 4; ++i) {
    graph.add({.kind = NodeKind::gpu, .host = i / 2, .number = i % 2, .name = "gpu"});
  }
  for (int i = 0; i < 3; ++i) graph.connect({i, i + 1, LinkClass::nvlink, 10, 1});
  EXPECT_EQ(Network(std::move(graph)).alike_group_size(), 1);
}

// Rings together must reach the optimum, which is what a rank with the fewest links can send.
TEST(Networks, RingsUseAllOfMeshesAndTori) {
  const std::pair<const char*, double> known[] = {
      {"mesh:4x4", 100},  {"mesh:3x4", 100},    {"torus:4x4", 200},
      {"torus:4x8", 200}, {"torus:4x4x4", 300}, {"torus:3x5", 200},
      {"ring:6", 100},    {"torus:8x8x8", 300}, {"torus:4x8,bandwidth=80", 320}};
  for (const auto& [description, GBps] : known) {
    SCOPED_TRACE(description);
    const auto made = network(description);
    const Graph& graph = made->graph();
    const std::vector<int> ranks = graph.rank_nodes();
    const Channels found = find_channels(graph, ranks, ChannelKind::ring).found;
    EXPECT_DOUBLE_EQ(found.total_GBps(), GBps);
    const std::vector<double> use = use_of_arcs(graph, found);
    for (Arc arc = 0; arc < graph.arcs(); ++arc) {
      EXPECT_LE(use[static_cast<size_t>(arc)], graph.link_of(arc).GBps);
    }
    for (const Channel& channel : found.channels) {
      EXPECT_EQ(channel.order.size(), ranks.size());
      EXPECT_EQ(channel.arcs.size(), ranks.size());
    }
  }
}

// In files of Slurm, a switch may have both nodes and neighbouring switches.
TEST(Networks, ReadDragonfliesOfSlurm) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "topology.conf";
  std::ofstream(path) << "SwitchName=s0 Nodes=n[0-3] Switches=s[1-2]\n"
                         "SwitchName=s1 Nodes=n[4-7] Switches=s[0,2]\n"
                         "SwitchName=s2 Nodes=n[8-11] Switches=s[0-1]\n";
  const auto made = load_network(path.string(), {});
  EXPECT_EQ(made->ranks(), 12);
  EXPECT_EQ(made->graph().links().size(), 12u + 3u);
  for (int to = 1; to < 12; ++to) expect_connected(*made, 0, to);
}

TEST(Networks, ReadPublishedFilesOfOtherSimulators) {
  const std::filesystem::path networks = testing::test_data("netsim_topologies");
  if (networks.empty()) GTEST_SKIP() << testing::kNoTestData;
  const std::filesystem::path folder = networks.parent_path();
  int read = 0;
  for (const char* name :
       {"chakra_astra/astra-sim_examples_network_analytical_HGX-H100-validated.yml",
        "chakra_astra/astra-sim_inputs_network_dgx_v100_4gpu.yml",
        "chakra_astra/astra-sim_inputs_network_hgx_h100_32gpu.yml",
        "chakra_astra/astra-sim_examples_network_htsim_8nodes.topo",
        "netsim_topologies/htsim_leaf_spine_tiny.topo",
        "netsim_topologies/simllm_clos_64_400g.topo",
        "netsim_topologies/astra_ns3_128_nodes_16_switch_topology.txt",
        "netsim_topologies/hpcc_topology.txt", "netsim_topologies/hpcc_fat.txt",
        "netsim_topologies/simai_Rail_Opti_SingleToR_16g_8gps_200Gbps_H20.txt",
        "netsim_topologies/simai_Spectrum-X_16g_8gps_100Gbps_A100.txt"}) {
    SCOPED_TRACE(name);
    const auto made = load_network((folder / name).string(), {});
    for (int to = 0; to < made->ranks(); ++to) expect_connected(*made, made->ranks() / 3, to);
    ++read;
  }
  EXPECT_EQ(read, 11);
  EXPECT_THROW(
      load_network((folder / "chakra_astra/astra-sim_inputs_network_dgx_v100_8gpu.yml").string(),
                   {}),
      Error);
}

}  // namespace
}  // namespace tutti
