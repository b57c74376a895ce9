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

// Each host is a node to which its ranks ("rank0", ...) are linked; with several hosts, a card
// links each to one network. A rank's link has the best bandwidth it reached on its host, a card's
// the best that any rank of the host reached elsewhere. `host_of`: host names, by rank.
Graph measured_graph(const std::vector<std::string>& host_of,
                     const std::vector<MeasuredPair>& pairs);

}  // namespace tutti
