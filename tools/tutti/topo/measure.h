// Implements `tutti topo --measure`: measures pairs of ranks, one by one and concurrently.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "collectives/communicator.h"
#include "tools/launcher/hosts.h"
#include "topology/measured_graph.h"

namespace tutti::tool {

struct MeasuredRanks {
  std::string transport;
  std::vector<std::string> host_of;  // by rank: host name
  std::vector<MeasuredPair> pairs;   // pairs measured one at a time
  // pairs of neighbours (0 and 1, 2 and 3, ...) measured at the same time
  std::vector<MeasuredPair> together;
};

// Returns an array of objects with from, to, latency_us and bandwidth_GBps.
Json to_json(const std::vector<MeasuredPair>& pairs);

// Collective. Returns host names by rank. Of several hosts or network namespaces with the same
// name, all but the first get numbers.
std::vector<std::string> names_of_hosts(Communicator& comm);

// Starts `ranks` ranks of this program on these hosts (none: this host) and returns their
// measurements. Throws Error(unsupported) that describes how the job failed.
MeasuredRanks measure_ranks(int ranks, const std::vector<Host>& hosts);

// Runs one of the ranks that measure_ranks() starts, and returns the exit code.
int run_measuring_rank();

// Formats latency and bandwidth by pair and, for at least four ranks, the fraction of a pair's
// bandwidth that remains if all neighbours transfer at the same time.
std::string to_text(const MeasuredRanks& measured);

}  // namespace tutti::tool
