// `tutti topo --measure`: what pairs of ranks reach, one after the other and at the same time.
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

// By rank. Of hosts, and network namespaces of them, that have one name, all but the first get a
// number. A collective call.
std::vector<std::string> names_of_hosts(Communicator& comm);

// Starts so many ranks of this program on these hosts (none: this one), and hears what they
// measure. Throws Error(unsupported) that says how the job ended.
MeasuredRanks measure_ranks(int ranks, const std::vector<Host>& hosts);

// What each of those ranks does; returns the exit code.
int run_measuring_rank();

// Latency and bandwidth by pair, and what is left where all neighbours talk: lines.
std::string to_text(const MeasuredRanks& measured);

}  // namespace tutti::tool
