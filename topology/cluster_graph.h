// The hosts of a running job as one graph: what each of them has found of itself, below the
// switches that it says it is under.
//
//              network
//             /       \                 racks "row0.rack0" and "row0.rack1" are below a switch
//          row0        row1             row0; hosts of which no rack is known, below the network
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
  Graph graph;       // of host 0; where it says that a network is there, its cards are on that
};

// Nodes of the host at index h have h as their host, and its name before theirs where there are
// several. What is known of the network is who is below which switch: a switch is taken to carry up
// whatever comes from below. The same for the same hosts in the same order.
Graph cluster_graph(std::span<const HostInCluster> hosts);

}  // namespace tutti
