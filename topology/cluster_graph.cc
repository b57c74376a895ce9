#include "topology/cluster_graph.h"

#include <map>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tutti {
namespace {

// Assumed network latency of a host for which no network card was detected.
constexpr double kSomeNetworkUs = 10;
constexpr double kSwitchUs = 0.5;

class Cluster {
 public:
  explicit Cluster(bool several) : several_(several) {}

  void add(const HostInCluster& host) {
    const int above = switch_of(host.rack);
    std::vector<int> copies;
    for (const GraphNode& node : host.graph.nodes()) {
      copies.push_back(node.host < 0 ? above : add(node, host.name));
    }
    bool is_reached = false;
    for (GraphLink link : host.graph.links()) {
      link.from = copies[static_cast<size_t>(link.from)];
      link.to = copies[static_cast<size_t>(link.to)];
      if (link.from == link.to) continue;
      if (link.from == above || link.to == above) {
        is_reached = true;
        below_[above] += link.GBps;
      }
      graph_.connect(link);
    }
    if (several_ && !is_reached && !copies.empty()) {
      graph_.connect(
          {copies.front(), above, LinkClass::network, kUnknownCardGBps, kSomeNetworkUs, true});
      below_[above] += kUnknownCardGBps;
    }
    ++hosts_;
  }

  // Connects each switch to the one above it, from the bottom to the top, and returns the graph.
  Graph finish() {
    for (auto link = uplinks_.rbegin(); link != uplinks_.rend(); ++link) {
      const double GBps = below_[link->first];
      if (GBps <= 0) continue;
      graph_.connect({link->first, link->second, LinkClass::network, GBps, kSwitchUs});
      below_[link->second] += GBps;
    }
    return std::move(graph_);
  }

 private:
  int add(GraphNode node, const std::string& host) {
    node.host = hosts_;
    if (several_) node.name = cat(host, '.', node.name);
    return graph_.add(std::move(node));
  }

  int switch_of(const std::string& rack) {
    const auto known = switches_.find(rack);
    if (known != switches_.end()) return known->second;
    const size_t dot = rack.rfind('.');
    const int above =
        rack.empty() ? -1 : switch_of(dot == std::string::npos ? "" : rack.substr(0, dot));
    const int own = graph_.add({.kind = NodeKind::network_switch,
                                .host = -1,
                                .number = static_cast<int>(switches_.size()),
                                .name = rack.empty() ? "network" : rack});
    switches_[rack] = own;
    if (above >= 0) uplinks_.emplace_back(own, above);
    return own;
  }

  const bool several_;
  int hosts_ = 0;
  Graph graph_;
  std::map<std::string, int> switches_;       // by rack: its switch
  std::vector<std::pair<int, int>> uplinks_;  // a switch and the one above it
  std::map<int, double> below_;               // GB/s of everything below a switch
};

}  // namespace

Graph cluster_graph(std::span<const HostInCluster> hosts) {
  Cluster cluster(hosts.size() > 1);
  for (const HostInCluster& host : hosts) cluster.add(host);
  return cluster.finish();
}

}  // namespace tutti
