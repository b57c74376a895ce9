// `tutti topo` in a job: the machine as its ranks find it together.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "collectives/communicator.h"
#include "topology/graph.h"

namespace tutti::tool {

struct JobGraph {
  Graph graph;
  // By rank.
  std::vector<int> nodes;
  std::vector<std::string> hosts;
  std::vector<std::string> racks;  // Place::rack
};

// Each host's first rank reads what its host is, and all are told: the same on all ranks. The ranks
// of a host are spread evenly over its GPUs or else its cores, as the launcher binds them; where
// there are more of them, several are on one node.
JobGraph graph_of_job(Communicator& comm, const std::string& own_rack);

// Rank, host, rack and node, a rank a line.
std::string table_of_places(const JobGraph& job);
Json places_of(const JobGraph& job);

}  // namespace tutti::tool
