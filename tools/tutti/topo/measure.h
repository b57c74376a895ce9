// `tutti topo --measure`: measures pairs of ranks, one by one and concurrently.
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
  std::vector<std::string> host_of;    // by rank
  std::vector<MeasuredPair> pairs;     // one at a time
  std::vector<MeasuredPair> together;  // neighbours (0 and 1, 2 and 3, ...), all at a time
};

// An array of objects: from, to, latency_us, bandwidth_GBps.
Json to_json(const std::vector<MeasuredPair>& pairs);

// Returns host names by rank. Hosts or network namespaces with the same name get numbers, except
// the first. Collective.
std::vector<std::string> names_of_hosts(Communicator& comm);

// Starts `ranks` ranks of this program on these hosts (none: this host) and returns their
// measurements. Throws Error(unsupported) that describes how the job failed.
MeasuredRanks measure_ranks(int ranks, const std::vector<Host>& hosts);

// Runs one of those ranks; returns the exit code.
int run_measuring_rank();

// Formats latency and bandwidth by pair, and the fraction of bandwidth with all pairs active.
std::string to_text(const MeasuredRanks& measured);

}  // namespace tutti::tool
