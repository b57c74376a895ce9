// What was measured between ranks, as a graph.
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

// Each host is a node to which its ranks ("rank0", ...) are linked, and where there are several a
// card that links it to one network. A rank's link carries what it reached best on its host, a
// card's what any rank of the host reached best elsewhere. `host_of`: names, by rank.
Graph measured_graph(const std::vector<std::string>& host_of,
                     const std::vector<MeasuredPair>& pairs);

}  // namespace tutti
