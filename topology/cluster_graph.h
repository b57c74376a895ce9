// The hosts of a running job as one graph: the graph that each host probed, below the switches that
// its rack path names.
//
//              network
//             /       \                 racks "row0.rack0" and "row0.rack1" are below a switch
//          row0        row1             row0; hosts without a known rack, below the network
//         /    \           \            itself
//   row0.rack0  row0.rack1  row1.rack0
//    |     |        |          |
//   nic   nic      nic        nic
#pragma once

#include <span>
#include <string>

#include "topology/graph.h"

namespace tutti {

struct HostInCluster {
  std::string name;
  std::string rack;  // Place::rack
  Graph graph;       // of host 0; its cards are linked to the network in it, if any
};

// Nodes of the host at index h get host number h, and its name as a prefix if there are several
// hosts. The network above is known only by nesting: a switch is assumed to carry upwards
// everything that comes from below. The same hosts in the same order give the same graph.
Graph cluster_graph(std::span<const HostInCluster> hosts);

}  // namespace tutti
