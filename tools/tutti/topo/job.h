// `tutti topo` in a job: the ranks assemble the topology of their hosts.
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

// The first rank of each host reads its host's topology; all ranks return the same graph. The ranks
// of a host are distributed evenly over its GPUs, or its cores without GPUs, as the launcher binds
// them; with more ranks several share a node.
JobGraph graph_of_job(Communicator& comm, const std::string& own_rack);

// Table of rank, host, rack and node, with one rank per line.
std::string table_of_places(const JobGraph& job);
Json places_of(const JobGraph& job);

}  // namespace tutti::tool
