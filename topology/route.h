// Routes through a graph, and the distance class of a pair of nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace tutti {

// Distance class of a route: the kind of the farthest component that it crosses. `nvidia-smi topo
// -m` and NCCL use the same names in the same order.
enum class PathType : uint8_t {
  LOC,  // the same node
  NVL,  // NVLink or xGMI, also through an NVLink switch
  C2C,  // the link between a processor and its GPU
  PIX,  // at most one PCI switch
  PXB,  // several PCI switches, no host bridge
  PXN,  // to a card near another GPU, by NVLink and that GPU
  PHB,  // a host bridge: through the processor
  SYS,  // between NUMA nodes or packages
  NET,  // between hosts
  DIS,  // not connected
};
std::string_view name(PathType type);

struct Route {
  std::vector<Arc> arcs;  // in order; empty from a node to itself, and if unconnected
  PathType type = PathType::DIS;
  double GBps = 0;  // bandwidth of the narrowest link; infinite from a node to itself
  double latency_us = 0;
};

PathType path_type(const Graph& graph, int from, std::span<const Arc> arcs);

// Returns true if routes may pass through this node. Routes pass through a card only between the
// card's host and the network.
bool forwards(const Graph& graph, int node);

// Returns the routes from one node to each of the nodes `to`, in the order of `to`. A route has the
// fewest links; among equally short routes it is the widest, and among equally wide ones the first
// found. Routes do not pass through GPUs, cores or hosts (unless Graph::ends_forward()), nor over
// the cards of a third host.
std::vector<Route> routes_from(const Graph& graph, int from, std::span<const int> to);
// Returns routes_from(), but throws Error(invalid_argument) that names the node if one is not
// connected.
std::vector<Route> ways_from(const Graph& graph, int from, std::span<const int> to);
// Returns the route to one node.
Route route(const Graph& graph, int from, int to);

}  // namespace tutti
