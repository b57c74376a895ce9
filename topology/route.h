// Ways through a graph, and how near two nodes are by them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace tutti {

// How near two nodes are by a route: the farthest thing that it crosses. The names, and their
// order, are those of `nvidia-smi topo -m` and NCCL.
enum class PathType : uint8_t {
  LOC,  // the same node
  NVL,  // NVLink or xGMI, also through an NVLink switch
  C2C,  // the link between a processor and its GPU
  PIX,  // at most one PCI switch
  PXB,  // several PCI switches, no host bridge
  PXN,  // to a card that is so near another GPU, by NVLink and that one
  PHB,  // a host bridge: through the processor
  SYS,  // between NUMA nodes or packages
  NET,  // between hosts
  DIS,  // not connected
};
std::string_view name(PathType type);

struct Route {
  std::vector<Arc> arcs;  // in order; empty from a node to itself, and where there is no way
  PathType type = PathType::DIS;
  double GBps = 0;  // of the narrowest link; infinite to itself
  double latency_us = 0;
};

PathType path_type(const Graph& graph, int from, std::span<const Arc> arcs);

// Whether ways lead through a node; of a card, only between its host and the network.
bool forwards(const Graph& graph, int node);

// From one node to some, in their order: over the fewest links, then the widest, then the first.
// Routes do not go through GPUs, cores or hosts (unless Graph::ends_forward()), nor over the cards
// of a third host.
std::vector<Route> routes_from(const Graph& graph, int from, std::span<const int> to);
// The same. Throws Error(invalid_argument) that names a node to which there is no way.
std::vector<Route> ways_from(const Graph& graph, int from, std::span<const int> to);
// One of those.
Route route(const Graph& graph, int from, int to);

}  // namespace tutti
