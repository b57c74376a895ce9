#include "topology/channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <numeric>
#include <pugixml.hpp>
#include <random>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/test_data.h"
#include "topology/graph_sources.h"
#include "topology/graph_text.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Computes the load of each arc again, by following the messages of each channel along the routes
// of the graph.
std::vector<double> recounted(const Graph& graph, const std::vector<int>& ranks,
                              const Channels& found) {
  std::vector<double> use(static_cast<size_t>(graph.arcs()));
  for (const Channel& channel : found.channels) {
    for (size_t i = 0; i < channel.order.size(); ++i) {
      const int to = channel.order[i];
      const int from = found.kind == ChannelKind::tree
                           ? channel.parents[static_cast<size_t>(to)]
                           : channel.order[(i + channel.order.size() - 1) % channel.order.size()];
      if (from < 0) continue;
      const Route way =
          route(graph, ranks[static_cast<size_t>(from)], ranks[static_cast<size_t>(to)]);
      for (const Arc arc : way.arcs) use[static_cast<size_t>(arc)] += found.GBps;
    }
  }
  return use;
}

// Expects every ring to be a permutation, every tree to span the ranks, and no link to be
// overloaded.
void expect_sound(const Graph& graph, const ChannelKind kind, const std::string& what) {
  const std::vector<int> ranks = graph.rank_nodes();
  const ChannelSearch search = find_channels(graph, ranks, kind);
  const Channels& found = search.found;
  ASSERT_FALSE(found.channels.empty()) << what;
  EXPECT_GT(found.GBps, 0) << what;
  std::vector<int> all(ranks.size());
  std::iota(all.begin(), all.end(), 0);
  for (const Channel& channel : found.channels) {
    EXPECT_TRUE(std::ranges::is_permutation(channel.order, all)) << what;
    if (kind == ChannelKind::ring) continue;
    ASSERT_EQ(channel.parents.size(), ranks.size()) << what;
    EXPECT_EQ(std::ranges::count(channel.parents, -1), 1) << what;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      size_t steps = 0;
      for (int at = static_cast<int>(rank); at >= 0 && steps <= ranks.size(); ++steps) {
        at = channel.parents[static_cast<size_t>(at)];
      }
      EXPECT_LE(steps, ranks.size()) << what << ": rank " << rank << " is in a circle";
    }
  }
  const std::vector<double> use = use_of_arcs(graph, found);
  for (Arc arc = 0; arc < graph.arcs(); ++arc) {
    EXPECT_LE(use[static_cast<size_t>(arc)], graph.link_of(arc).GBps + 1e-3) << what << " " << arc;
  }
  if (graph.hosts() == 1 && ranks.size() > 1) {
    const std::vector<double> again = recounted(graph, ranks, found);
    for (size_t arc = 0; arc < use.size(); ++arc) {
      EXPECT_NEAR(again[arc], use[arc], 1e-3) << what << " " << arc;
    }
  }
  // A second search must find the same channels.
  const ChannelSearch again = find_channels(graph, ranks, kind);
  ASSERT_EQ(again.found.channels.size(), found.channels.size()) << what;
  for (size_t i = 0; i < found.channels.size(); ++i) {
    EXPECT_EQ(again.found.channels[i].order, found.channels[i].order) << what;
  }
}

void expect_sound(const Graph& graph, const std::string& what) {
  expect_sound(graph, ChannelKind::ring, what + " rings");
  expect_sound(graph, ChannelKind::tree, what + " trees");
}

ChannelSearch rings_of(const Graph& graph) {
  return find_channels(graph, graph.rank_nodes(), ChannelKind::ring);
}

// Returns GPUs of which each pair is connected by `links` links.
Graph full_mesh(int gpus, int links) {
  Graph graph;
  for (int i = 0; i < gpus; ++i) {
    graph.add({.kind = NodeKind::gpu, .number = i, .name = cat("gpu", i)});
  }
  for (int i = 0; i < gpus; ++i) {
    for (int j = 0; j < i; ++j) graph.connect({i, j, LinkClass::nvlink, 20.0 * links, 0.5});
  }
  return graph;
}

TEST(Channels, UseEveryLinkOfAFullMesh) {
  for (const int gpus : {3, 4, 5, 7, 8}) {
    const ChannelSearch search = rings_of(full_mesh(gpus, 1));
    // Each GPU has gpus - 1 links, which limits the rings. For 4 and 6 vertices, the complete
    // directed graph cannot be divided into rings with whole links, but with half links.
    const double most = 20.0 * (gpus - 1);
    EXPECT_GE(search.found.total_GBps(), gpus == 4 ? 0.66 * most : most * 0.99) << gpus;
    expect_sound(full_mesh(gpus, 1), cat("mesh ", gpus));
  }
}

TEST(Channels, OverASwitchAreBoundedByTheLinksToIt) {
  Graph graph;
  const int nvlink_switch = graph.add({.kind = NodeKind::nvlink_switch, .name = "switch"});
  for (int i = 0; i < 8; ++i) {
    const int gpu = graph.add({.kind = NodeKind::gpu, .number = i, .name = cat("gpu", i)});
    graph.connect({gpu, nvlink_switch, LinkClass::nvlink, 360, 0.5});
  }
  EXPECT_DOUBLE_EQ(rings_of(graph).found.total_GBps(), 360);
  expect_sound(graph, "switch");
}

TEST(Channels, CrossNarrowLinksOnce) {
  // Two sockets have four GPUs each, numbered alternately. A ring in numerical order would cross
  // the link between the sockets eight times.
  std::string text = "node numa0 numa_node\nnode numa1 numa_node\nlink numa0 numa1 system 10GB/s\n";
  for (int i = 0; i < 8; ++i) {
    text += cat("node gpu", i, " gpu\nlink gpu", i, " numa", i % 2, " pci 12GB/s\n");
  }
  const Graph graph = parse_graph_text(text, "dealt");
  const ChannelSearch search = rings_of(graph);
  ASSERT_EQ(search.found.channels.size(), 1u);
  EXPECT_DOUBLE_EQ(search.found.GBps, 10);
  int crossings = 0;
  const std::vector<int>& order = search.found.channels[0].order;
  for (size_t i = 0; i < order.size(); ++i) {
    crossings += order[i] % 2 != order[(i + 1) % order.size()] % 2 ? 1 : 0;
  }
  EXPECT_EQ(crossings, 2);
}

TEST(Channels, OneRankAndTwoHaveChannels) {
  expect_sound(parse_graph_text("node a gpu\n", "one"), "one");
  expect_sound(full_mesh(2, 1), "two");
  EXPECT_DOUBLE_EQ(rings_of(full_mesh(2, 3)).found.total_GBps(), 60);
}

TEST(Channels, NameRanksWithoutAPathBetweenThem) {
  const Graph graph = parse_graph_text("node a gpu\nnode b gpu\n", "apart");
  try {
    (void)rings_of(graph);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no path from a to b"));
  }
}

// Returns two hosts of GPUs. Each GPU has its own card. Bandwidths are in GB/s: `card` of the card,
// `up` from the switch of the card to the processor, `nvlink` of NVLink.
Graph two_hosts_of_rails(int gpus = 4, int card = 24, int up = 24, int nvlink = 240) {
  std::string text = "node net network_switch\n";
  for (int host = 0; host < 2; ++host) {
    text += cat("node numa", host, " numa_node host=", host, "\nnode nvs", host,
                " nvlink_switch host=", host, "\n");
    for (int i = 0; i < gpus; ++i) {
      const std::string id = cat(host, "_", i);
      text += cat("node sw", id, " pci_switch host=", host, "\nnode gpu", id, " gpu host=", host,
                  "\nnode card", id, " nic host=", host, "\nlink sw", id, " numa", host, " pci ",
                  up, "GB/s\nlink gpu", id, " sw", id, " pci ", card, "GB/s\nlink card", id, " sw",
                  id, " pci ", card, "GB/s\nlink gpu", id, " nvs", host, " nvlink ", nvlink,
                  "GB/s\nlink card", id, " net network ", card + 1, "GB/s\n");
    }
  }
  return parse_graph_text(text, "rails");
}

TEST(Channels, OverHostsUseTheCardOfARankAndStayOnItsRail) {
  const Graph graph = two_hosts_of_rails();
  const ChannelSearch search = rings_of(graph);
  EXPECT_DOUBLE_EQ(search.found.total_GBps(), 4 * 24);
  std::set<int> cards;
  for (const Channel& channel : search.found.channels) {
    ASSERT_EQ(channel.cards.size(), 2u);
    EXPECT_EQ(graph.node(channel.cards[0]).number, graph.node(channel.cards[1]).number);
    cards.insert(graph.node(channel.cards[0]).number);
  }
  EXPECT_EQ(cards.size(), 4u);
  expect_sound(graph, "rails");
}

// The hosts have eight GPUs, like those with eight H100. Through the processor, a ring would reach
// 8 GB/s of each card. As with NCCL's PXN, it must use the GPU beside the card instead.
TEST(Channels, ReachACardThroughTheGpuBesideIt) {
  const Graph graph = two_hosts_of_rails(8, 48, 8, 360);
  const ChannelSearch search = rings_of(graph);
  EXPECT_DOUBLE_EQ(search.found.total_GBps(), 360);
  ASSERT_EQ(search.found.channels.size(), 8u);
  for (const Channel& channel : search.found.channels) {
    const int card = graph.node(channel.cards[0]).number;
    EXPECT_EQ(channel.order.front(), card) << "it comes in beside the card";
    for (const Arc arc : channel.arcs) {
      EXPECT_NE(graph.node(graph.head(arc)).kind, NodeKind::numa_node);
    }
  }
  expect_sound(graph, "by peers");
}

// In the second host, switches and cards have other positions in the graph than in the first one.
TEST(Channels, AreSearchedOnceForEqualHosts) {
  const Graph graph = two_hosts_of_rails();
  const ChannelSearch search = rings_of(graph);
  const std::vector<double> use = use_of_arcs(graph, search.found);
  for (Arc arc = 0; arc < graph.arcs(); ++arc) {
    const bool is_second =
        graph.node(graph.tail(arc)).host == 1 || graph.node(graph.head(arc)).host == 1;
    if (is_second) {
      EXPECT_EQ(use[static_cast<size_t>(arc)], 0) << arc;
    }
  }
  // If the hosts have different GPUs, they are not equal.
  std::vector<int> some = graph.rank_nodes();
  some.erase(some.begin() + 1);
  const ChannelSearch fewer = find_channels(graph, some, ChannelKind::ring);
  for (const Channel& channel : fewer.found.channels) {
    for (size_t host = 0; host < 2; ++host) {
      EXPECT_EQ(graph.node(channel.cards[host]).host, static_cast<int>(host));
    }
  }
}

TEST(Channels, NeedANetworkBetweenTheHosts) {
  const Graph graph = parse_graph_text(R"(
node net0 network_switch
node net1 network_switch
node a gpu
node card_a nic
node b gpu host=1
node card_b nic host=1
link a card_a pci 12GB/s
link b card_b pci 12GB/s
link card_a net0 network 10GB/s
link card_b net1 network 10GB/s
)",
                                       "apart");
  EXPECT_THROW((void)rings_of(graph), Error);
}

// A card that has no path to the ranks is ignored.
TEST(Channels, UseCardsThatCanBeReached) {
  const Graph graph = parse_graph_text(R"(
node net network_switch
node a gpu
node card_a nic
node lost nic
node b gpu host=1
node card_b nic host=1
link a card_a pci 12GB/s
link b card_b pci 12GB/s
link card_a net network 10GB/s
link lost net network 100GB/s
link card_b net network 10GB/s
)",
                                       "lost");
  EXPECT_DOUBLE_EQ(rings_of(graph).found.total_GBps(), 10);
}

TEST(Channels, TreesOverHostsAreMirrored) {
  const Graph graph = repeat_host(two_hosts_of_rails(), 7);
  const std::vector<int> ranks = graph.rank_nodes();
  const ChannelSearch search = find_channels(graph, ranks, ChannelKind::tree);
  ASSERT_GE(search.found.channels.size(), 2u);
  // A host that is an inner node of one tree must be a leaf of the next tree, except for one host.
  const auto inside = [&](const Channel& channel) {
    std::set<int> hosts;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const int parent = channel.parents[rank];
      if (parent < 0) continue;
      const int host = graph.node(ranks[static_cast<size_t>(parent)]).host;
      if (host != graph.node(ranks[rank]).host) hosts.insert(host);
    }
    return hosts;
  };
  const std::set<int> first = inside(search.found.channels[0]);
  const std::set<int> second = inside(search.found.channels[1]);
  std::vector<int> both;
  std::ranges::set_intersection(first, second, std::back_inserter(both));
  EXPECT_LE(both.size(), 1u);
  // Reduced data is sent towards the root. No card may receive or send more than its capacity.
  std::map<int, double> in;
  std::map<int, double> out;
  for (const Channel& channel : search.found.channels) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const int parent = channel.parents[rank];
      if (parent < 0) continue;
      const auto own = static_cast<size_t>(graph.node(ranks[rank]).host);
      const auto other = static_cast<size_t>(graph.node(ranks[static_cast<size_t>(parent)]).host);
      if (own == other) continue;
      out[channel.cards[own]] += search.found.GBps;
      in[channel.cards[other]] += search.found.GBps;
    }
  }
  for (const auto& [card, GBps] : in) EXPECT_LE(GBps, 25 + 1e-6) << card;
  for (const auto& [card, GBps] : out) EXPECT_LE(GBps, 25 + 1e-6) << card;
  expect_sound(graph, "mirrored");
}

TEST(Channels, RandomMachinesHaveSoundChannels) {
  std::mt19937 random(16);
  for (int round = 0; round < 30; ++round) {
    const int numa_nodes = 1 + static_cast<int>(random() % 4);
    const int gpus = 1 + static_cast<int>(random() % 9);
    Graph graph;
    std::vector<int> above;
    for (int i = 0; i < numa_nodes; ++i) {
      above.push_back(graph.add({.kind = NodeKind::numa_node, .number = i, .name = cat("n", i)}));
      for (int j = 0; j < i; ++j) {
        // Each node is connected to the one before it, so that the graph is connected. Only some of
        // the other pairs have a link.
        if (j != i - 1 && random() % 2 == 0) continue;
        graph.connect({above[static_cast<size_t>(i)], above[static_cast<size_t>(j)],
                       LinkClass::system, 6.0 + static_cast<double>(random() % 5), 0.5});
      }
    }
    for (int i = 0; i < static_cast<int>(random() % 4); ++i) {
      const int node = graph.add({.kind = NodeKind::pci_switch, .name = cat("s", i)});
      graph.connect({above[random() % above.size()], node, LinkClass::pci, 24, 0.3});
      above.push_back(node);
    }
    std::vector<int> nodes;
    for (int i = 0; i < gpus; ++i) {
      const int node = graph.add({.kind = NodeKind::gpu, .number = i, .name = cat("g", i)});
      graph.connect({node, above[random() % above.size()], LinkClass::pci, 12, 0.3});
      for (const int other : nodes) {
        if (random() % 3 == 0) {
          graph.connect({node, other, LinkClass::nvlink,
                         20.0 * (1 + static_cast<double>(random() % 3)), 0.5});
        }
      }
      nodes.push_back(node);
    }
    expect_sound(graph, cat("round ", round));
  }
}

// Bandwidths that NCCL itself finds, in files beside some topologies.
struct Known {
  const char* name;
  double share;  // the part of NCCL's bandwidth that must be reached
  const char* why;
};
constexpr Known kKnown[] = {
    {"ucb_dgx1v_8xV100", 1, ""},
    {"panlichen_topo", 1, ""},
    {"simllm_perlmutter_a100_4x_slingshot", 1, ""},
    {"simllm_vastai_hgx_b200_8x", 1, ""},
    {"azure_ncv4", 0.6, "trees forced by hand, of twice what the slots in the file carry"},
};

TEST(Channels, HaveTheBandwidthOfNccl) {
  const std::filesystem::path topologies = testing::test_data("nccl_topo");
  const std::filesystem::path graphs = testing::test_data("nccl_graph");
  if (topologies.empty() || graphs.empty()) GTEST_SKIP() << testing::kNoTestData;
  for (const Known& known : kKnown) {
    const Graph graph = load_graph((topologies / cat(known.name, ".xml")).string());
    pugi::xml_document file;
    ASSERT_TRUE(file.load_file((graphs / cat(known.name, ".graph.xml")).c_str())) << known.name;
    for (const pugi::xml_node& found : file.child("graphs").children("graph")) {
      const int pattern = found.attribute("pattern").as_int();
      if (pattern != 4 && pattern != 1) continue;
      const double nccl =
          found.attribute("nchannels").as_int() * found.attribute("speedintra").as_double();
      const ChannelKind kind = pattern == 4 ? ChannelKind::ring : ChannelKind::tree;
      const double ours = find_channels(graph, graph.rank_nodes(), kind).found.total_GBps();
      const double share = kind == ChannelKind::tree ? known.share : 1;
      EXPECT_GE(ours, share * nccl * 0.999) << known.name << ' ' << name(kind) << ' ' << known.why;
      std::printf("%-40s %s  NCCL %6.1f  here %6.1f GB/s\n", known.name, name(kind).data(), nccl,
                  ours);
    }
  }
}

TEST(Channels, PublishedMachinesHaveSoundChannels) {
  const std::filesystem::path folder = testing::test_data("nccl_topo");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Graph graph = load_graph(entry.path().string());
    expect_sound(graph, entry.path().filename().string());
  }
}

}  // namespace
}  // namespace tutti
