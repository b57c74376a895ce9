// The hosts of a running job as one graph: the graphs that the hosts probed, connected by the
// switches that each host's rack path names.
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
  std::string rack;  // as in Place::rack
  // The host's own graph. Its nodes belong to host 0, except for nodes that represent the network,
  // which its cards are linked to.
  Graph graph;
};

// Builds the graph of all hosts. Nodes of the host at index h get host number h and, if there are
// several hosts, its name as a prefix. The bandwidth of the network is not known: a switch is
// assumed to carry upwards all that comes from below. The same hosts in the same order give the
// same graph.
Graph cluster_graph(std::span<const HostInCluster> hosts);

}  // namespace tutti
