// Measurements between ranks as a graph.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti {

struct MeasuredPair {
  int from = 0;
  int to = 0;
  double latency_us = 0;
  double GBps = 0;
};

// Builds a graph from measurements. `host_of`: host names, by rank. Each host is a node that its
// ranks ("rank0", ...) are linked to; several hosts are each linked by a card to one network. A
// rank's link has the best bandwidth that the rank reached on its host. A card has the best
// bandwidth that any rank of its host reached to another host.
Graph measured_graph(const std::vector<std::string>& host_of,
                     const std::vector<MeasuredPair>& pairs);

}  // namespace tutti
