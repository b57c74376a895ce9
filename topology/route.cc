#include "topology/route.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace tutti {
namespace {

// Returns true if a route from node `from` that arrived by `in` may continue by `out`. A card leads
// from the host where the route began into the network, or from the network into the host where it
// ends; a route that has left a host does not pass through others.
bool may_pass(const Graph& graph, int from, Arc in, Arc out) {
  const int node = graph.tail(out);
  const int home = graph.node(from).host;
  if (graph.node(node).host < 0 && graph.node(graph.head(out)).host == home) return false;
  if (node == from) return true;
  if (graph.node(node).kind != NodeKind::nic) return forwards(graph, node);
  const bool came = graph.link_of(in).kind == LinkClass::network;
  const bool leaves = graph.link_of(out).kind == LinkClass::network;
  return leaves ? !came && graph.node(node).host == home : came;
}

struct Reached {
  int hops = std::numeric_limits<int>::max();
  double GBps = 0;
  Arc by = -1;

  bool worse_than(int other_hops, double other_GBps) const {
    return other_hops != hops ? other_hops < hops : other_GBps > GBps;
  }
};

std::vector<Reached> reach_from(const Graph& graph, int from) {
  std::vector<Reached> reached(graph.nodes().size());
  const auto at = [&](int node) -> Reached& { return reached[static_cast<size_t>(node)]; };
  at(from) = {0, std::numeric_limits<double>::infinity(), -1};
  std::vector<int> frontier = {from};
  for (int hops = 1; !frontier.empty(); ++hops) {
    std::vector<int> next;
    for (const int node : frontier) {
      for (const Arc arc : graph.arcs_from(node)) {
        if (!may_pass(graph, from, at(node).by, arc)) continue;
        const double GBps = std::min(at(node).GBps, graph.link_of(arc).GBps);
        Reached& there = at(graph.head(arc));
        if (!there.worse_than(hops, GBps)) continue;
        if (there.hops > hops) next.push_back(graph.head(arc));
        there = {hops, GBps, arc};
      }
    }
    frontier = std::move(next);
  }
  return reached;
}

Route route_to(const Graph& graph, const std::vector<Reached>& reached, int from, int to) {
  Route route;
  const Reached& end = reached[static_cast<size_t>(to)];
  if (end.hops == std::numeric_limits<int>::max()) return route;
  for (int node = to; node != from;) {
    const Arc arc = reached[static_cast<size_t>(node)].by;
    route.arcs.push_back(arc);
    route.latency_us += graph.link_of(arc).latency_us;
    node = graph.tail(arc);
  }
  std::reverse(route.arcs.begin(), route.arcs.end());
  route.GBps = end.GBps;
  route.type = path_type(graph, from, route.arcs);
  return route;
}

}  // namespace

std::string_view name(PathType type) {
  static constexpr std::array<std::string_view, 10> kNames = {"LOC", "NVL", "C2C", "PIX", "PXB",
                                                              "PXN", "PHB", "SYS", "NET", "DIS"};
  return kNames[static_cast<size_t>(type)];
}

PathType path_type(const Graph& graph, int from, std::span<const Arc> arcs) {
  PathType farthest = PathType::LOC;
  int pci_switches = 0;
  const auto at_least = [&](PathType type) { farthest = std::max(farthest, type); };
  int node = from;
  for (const Arc arc : arcs) {
    const NodeKind passed = graph.node(node).kind;
    if (node != from && (passed == NodeKind::numa_node || passed == NodeKind::package)) {
      at_least(PathType::PHB);
    }
    switch (graph.link_of(arc).kind) {
      case LinkClass::nvlink:
      case LinkClass::xgmi:
        at_least(PathType::NVL);
        break;
      case LinkClass::c2c:
        at_least(PathType::C2C);
        break;
      case LinkClass::pci:
        if (graph.node(graph.head(arc)).kind == NodeKind::pci_switch) ++pci_switches;
        at_least(pci_switches > 1 ? PathType::PXB : PathType::PIX);
        break;
      case LinkClass::memory:
        at_least(PathType::PHB);
        break;
      case LinkClass::system:
        at_least(PathType::SYS);
        break;
      case LinkClass::network:
        at_least(PathType::NET);
        break;
    }
    node = graph.head(arc);
  }
  return farthest;
}

bool forwards(const Graph& graph, int node) {
  switch (graph.node(node).kind) {
    case NodeKind::package:
    case NodeKind::numa_node:
    case NodeKind::pci_switch:
    case NodeKind::nvlink_switch:
    case NodeKind::network_switch:
    case NodeKind::nic:
      return true;
    case NodeKind::host:
    case NodeKind::core:
    case NodeKind::gpu:
      return graph.ends_forward();
  }
  return false;
}

std::vector<Route> routes_from(const Graph& graph, int from, std::span<const int> to) {
  const std::vector<Reached> reached = reach_from(graph, from);
  std::vector<Route> routes;
  routes.reserve(to.size());
  for (const int node : to) routes.push_back(route_to(graph, reached, from, node));
  return routes;
}

std::vector<Route> ways_from(const Graph& graph, int from, std::span<const int> to) {
  std::vector<Route> routes = routes_from(graph, from, to);
  for (size_t i = 0; i < to.size(); ++i) {
    if (routes[i].type != PathType::DIS) continue;
    throw Error(
        ErrorCode::invalid_argument,
        cat("there is no path from ", graph.node(from).name, " to ", graph.node(to[i]).name),
        {.cause = "the source of the graph lacks links"});
  }
  return routes;
}

Route route(const Graph& graph, int from, int to) {
  return route_to(graph, reach_from(graph, from), from, to);
}

}  // namespace tutti
