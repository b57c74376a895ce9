// The machine, or a whole cluster, as a graph of components and the links between them.
//
//   host0                                      host1
//     numa_node0 ---- system ---- numa_node1     ...
//       | pci            | pci
//     pci_switch       pci_switch
//      |      |         |      |
//     gpu0   nic0      gpu1   nic1 --- network --- network_switch --- nic0 of host1
//      `---- nvlink ----'
//
// Routes (route.h) and channels (channels.h) are found on the graph. The graph is also drawn, and
// used to predict and simulate costs. It comes from probing, from files, or from a description
// (graph_sources.h), and is the same on all ranks that read the same source.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Maximum number of nodes of a graph from a file or a description. It bounds the memory that a
// hostile file can take.
inline constexpr int kMostNodes = 1 << 20;

enum class NodeKind : uint8_t {
  host,  // a whole host, in clusters without further detail
  package,
  numa_node,
  core,
  pci_switch,
  gpu,
  nvlink_switch,
  nic,
  network_switch,
};

enum class LinkClass : uint8_t {
  nvlink,
  xgmi,
  c2c,  // between a processor and the GPU beside it
  pci,
  system,   // between NUMA nodes and packages: UPI, Infinity Fabric
  memory,   // between a core and its NUMA node
  network,  // between hosts and switches
};

std::string_view name(NodeKind kind);
std::string_view name(LinkClass kind);
std::optional<NodeKind> parse_node_kind(std::string_view name);
std::optional<LinkClass> parse_link_class(std::string_view name);

struct GraphNode {
  NodeKind kind = NodeKind::host;
  int host = 0;      // from 0; -1: outside hosts
  int number = -1;   // index among nodes of its kind on its host, in the source's order
  std::string name;  // for display and lookup: "gpu3", "mlx5_0", "leaf2"
};

// A cable, or a bundle of equal ones. Both directions carry `GBps` at the same time.
struct GraphLink {
  int from = 0;  // node indices
  int to = 0;
  LinkClass kind = LinkClass::network;
  double GBps = 0;  // achievable bandwidth per direction, in 1e9 bytes per second
  double latency_us = 0;
  bool assumed = false;  // the source does not state the bandwidth
};

// Assumed bandwidth of a network card that reports none, for example in a virtual machine: 10
// Gbit/s.
inline constexpr double kUnknownCardGBps = 1.25;

// One direction of a link: arc 2 * link leads from `from` to `to`, arc 2 * link + 1 leads back.
using Arc = int;

class Graph {
 public:
  // Adds a node or a link and returns its index. The ends of a link must exist and differ, and its
  // bandwidth must be positive; otherwise Error(invalid_argument) is thrown.
  int add(GraphNode node);
  int connect(GraphLink link);
  // Sets the number and name of a node, once all nodes are known.
  void rename(int node, int number, std::string name);

  std::span<const GraphNode> nodes() const { return nodes_; }
  std::span<const GraphLink> links() const { return links_; }
  const GraphNode& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  const GraphLink& link_of(Arc arc) const { return links_[static_cast<size_t>(arc / 2)]; }
  int arcs() const { return 2 * static_cast<int>(links_.size()); }
  int tail(Arc arc) const { return arc % 2 == 0 ? link_of(arc).from : link_of(arc).to; }
  int head(Arc arc) const { return arc % 2 == 0 ? link_of(arc).to : link_of(arc).from; }
  // Returns the arcs that leave a node, in the order in which they were connected.
  std::span<const Arc> arcs_from(int node) const { return out_[static_cast<size_t>(node)]; }

  // Returns true if routes may pass through GPUs, cores and hosts. This holds in rings and meshes
  // of such nodes, which contain no other nodes.
  bool ends_forward() const { return ends_forward_; }
  void let_ends_forward() { ends_forward_ = true; }

  int hosts() const { return hosts_; }
  // Returns the nodes of the ranks, by rank: the GPUs in order of host and number; if there are no
  // GPUs, the cores; if there are no cores, the hosts.
  std::vector<int> rank_nodes() const;

 private:
  std::vector<GraphNode> nodes_;
  std::vector<GraphLink> links_;
  std::vector<std::vector<Arc>> out_;  // by node
  int hosts_ = 0;
  bool ends_forward_ = false;
};

}  // namespace tutti
