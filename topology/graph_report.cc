#include "topology/graph_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "topology/route.h"

namespace tutti {
namespace {

constexpr size_t kMostInMatrix = 32;

std::string counted(int count, const char* one, const char* several) {
  return cat(count, ' ', count == 1 ? one : several);
}

int count_of(const Graph& graph, int host, NodeKind kind) {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [&](const GraphNode& node) {
    return node.host == host && node.kind == kind;
  }));
}

std::string parts_of(const Graph& graph, int host) {
  struct Named {
    NodeKind kind;
    const char* one;
    const char* several;
  };
  constexpr Named kNamed[] = {{NodeKind::package, "package", "packages"},
                              {NodeKind::numa_node, "NUMA node", "NUMA nodes"},
                              {NodeKind::core, "core", "cores"},
                              {NodeKind::gpu, "GPU", "GPUs"},
                              {NodeKind::nvlink_switch, "NVLink switch", "NVLink switches"},
                              {NodeKind::nic, "card", "cards"}};
  std::string text;
  for (const Named& named : kNamed) {
    const int count = count_of(graph, host, named.kind);
    if (count > 0) text += cat(text.empty() ? "" : ", ", counted(count, named.one, named.several));
  }
  return text;
}

// Returns the index in `nodes` of the node of this kind with the fewest links on its route; -1 if
// there is none.
int nearest(const Graph& graph, std::span<const int> nodes, std::span<const Route> ways,
            NodeKind kind) {
  int best = -1;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (graph.node(nodes[i]).kind != kind || ways[i].type == PathType::DIS) continue;
    if (best < 0 || ways[i].arcs.size() < ways[static_cast<size_t>(best)].arcs.size()) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

// Describes the links that all channels together saturate.
std::string bounds_of(const Graph& graph, const Channels& channels) {
  const std::vector<double> use = use_of_arcs(graph, channels);
  std::map<std::string, int> full;  // count by class and bandwidth
  for (Arc arc = 0; arc < graph.arcs(); ++arc) {
    const GraphLink& link = graph.link_of(arc);
    // A link is saturated if less than half of the bandwidth of a channel remains.
    if (link.GBps - use[static_cast<size_t>(arc)] < channels.GBps / 2 &&
        use[static_cast<size_t>(arc)] > 0) {
      ++full[cat(name(link.kind), " links of ", link.GBps, " GB/s")];
    }
  }
  std::string text;
  for (const auto& [kind, count] : full) {
    text += cat(text.empty() ? "" : "; ", count, " directions of ", kind);
  }
  return text;
}

}  // namespace

std::string summary(const Graph& graph) {
  const int switches = static_cast<int>(
      std::ranges::count(graph.nodes(), NodeKind::network_switch, &GraphNode::kind));
  std::string text = counted(graph.hosts(), "host", "hosts");
  const std::string first = parts_of(graph, 0);
  bool alike = true;
  for (int host = 1; host < graph.hosts() && host < 64; ++host) {
    alike = alike && parts_of(graph, host) == first;
  }
  if (!first.empty()) {
    text += cat(graph.hosts() == 1 ? ": " : alike ? ", each with " : ", the first with ", first);
  }
  if (graph.hosts() > 1 && switches > 0)
    text += cat("; ", counted(switches, "network switch", "network switches"));
  return text;
}

std::string table_of_ranks(const Graph& graph, std::span<const int> ranks) {
  std::map<int, std::vector<int>> nodes_of;  // candidate neighbours of a rank, by host
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    const NodeKind kind = graph.nodes()[node].kind;
    if (kind == NodeKind::numa_node || kind == NodeKind::package || kind == NodeKind::nic) {
      nodes_of[graph.nodes()[node].host].push_back(static_cast<int>(node));
    }
  }
  std::string text = "rank  node                  host  NUMA node       nearest card\n";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const GraphNode& node = graph.node(ranks[rank]);
    const std::vector<int>& nodes = nodes_of[node.host];
    const std::vector<Route> ways = routes_from(graph, ranks[rank], nodes);
    int numa = nearest(graph, nodes, ways, NodeKind::numa_node);
    if (numa < 0) numa = nearest(graph, nodes, ways, NodeKind::package);
    const int card = nearest(graph, nodes, ways, NodeKind::nic);
    const auto name_or_none = [&](int index) {
      return index < 0 ? std::string("-") : graph.node(nodes[static_cast<size_t>(index)]).name;
    };
    const std::string by =
        card < 0 ? "" : cat(" (", name(ways[static_cast<size_t>(card)].type), ")");
    char line[256];
    std::snprintf(line, sizeof line, "%4zu  %-20s  %4d  %-14s  %s%s\n", rank, node.name.c_str(),
                  node.host, name_or_none(numa).c_str(), name_or_none(card).c_str(), by.c_str());
    text += line;
  }
  return text;
}

std::string matrix_of_paths(const Graph& graph, std::span<const int> ranks) {
  std::vector<int> shown(ranks.begin(), ranks.end());
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    if (graph.nodes()[node].kind == NodeKind::nic) shown.push_back(static_cast<int>(node));
  }
  const bool is_cut = shown.size() > kMostInMatrix;
  if (is_cut) shown.resize(kMostInMatrix);
  size_t width = 4;
  for (const int node : shown) width = std::max(width, graph.node(node).name.size() + 1);
  const auto cell = [&](std::string_view word) {
    return std::string(word) + std::string(width - word.size(), ' ');
  };
  std::string text = cell("");
  for (const int node : shown) text += cell(graph.node(node).name);
  text += '\n';
  for (const int from : shown) {
    const std::vector<Route> routes = routes_from(graph, from, shown);
    text += cell(graph.node(from).name);
    for (size_t to = 0; to < shown.size(); ++to) {
      text += cell(from == shown[to] ? "X" : name(routes[to].type));
    }
    text += '\n';
  }
  if (is_cut) text += cat("(the first ", kMostInMatrix, ")\n");
  return text;
}

std::string unknown_speeds(const Graph& graph) {
  std::string names;
  for (const GraphLink& link : graph.links()) {
    if (link.assumed) names += cat(names.empty() ? "" : ", ", graph.node(link.from).name);
  }
  if (names.empty()) return "";
  return cat("The bandwidth of ", names, " is unknown: ", 8 * kUnknownCardGBps,
             " Gbit/s are assumed.\n");
}

std::string describe(const Graph& graph, std::span<const int> ranks, const ChannelSearch& search) {
  const Channels& found = search.found;
  const std::string kind(name(found.kind));
  std::string text = cat(found.channels.size(), ' ', kind, found.channels.size() == 1 ? "" : "s",
                         " of ", found.GBps, " GB/s, ", found.total_GBps(), " GB/s in total\n");
  for (size_t i = 0; i < found.channels.size(); ++i) {
    const Channel& channel = found.channels[i];
    text += cat("  ", kind, ' ', i, ": ");
    for (const int rank : channel.order) text += cat(rank, ' ');
    if (!channel.cards.empty()) text += cat("by ", graph.node(channel.cards.front()).name);
    text += '\n';
  }
  const std::string bounds = ranks.size() > 1 ? bounds_of(graph, found) : "";
  if (!bounds.empty()) text += cat("  bounded by ", bounds, '\n');
  const std::string lines = to_text(search);
  for (const std::string& line : split(lines, '\n')) {
    if (!line.empty()) text += cat("  ", line, '\n');
  }
  return text;
}

}  // namespace tutti
