// Implements `tutti topo` in a job: the ranks assemble the topology of their hosts.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "collectives/communicator.h"
#include "topology/graph.h"

namespace tutti::tool {

struct JobGraph {
  Graph graph;
  // by rank: its node in the graph
  std::vector<int> nodes;
  std::vector<std::string> hosts;
  std::vector<std::string> racks;  // by rank: Place::rack
};

// Returns the graph of the job's hosts, the same on all ranks. The first rank of each host reads
// its host's topology. Ranks are distributed evenly over the GPUs of their host. If the host has
// no GPUs, they are distributed evenly over its cores, except that a rank that may use only some
// cores is placed on the first of those. Several ranks share a GPU or core if there are more ranks.
JobGraph graph_of_job(Communicator& comm, const std::string& own_rack);

// Returns a table of rank, host, rack and node, with one line per rank.
std::string table_of_places(const JobGraph& job);
Json places_of(const JobGraph& job);

}  // namespace tutti::tool
