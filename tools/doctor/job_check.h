// The doctor's test job: runs collectives with known results, and measures latency and bandwidth
// between pairs of ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/pairs.h"
#include "tools/doctor/facts.h"
#include "tools/launcher/hosts.h"

namespace tutti::tool {

// Returns the hosts that get ranks of a job, each with as many slots as ranks. If `hosts` is empty,
// returns this host only.
std::vector<Host> with_ranks(int ranks, const std::vector<Host>& hosts);
std::vector<int> ranks_of(const std::vector<Host>& dealt);

// Returns the pairs to measure, in rounds. The pairs of a round are disjoint and measured at the
// same time. Between hosts, the first rank of each host is measured with that of every other host;
// within a host, every pair of ranks. If there are very many pairs, a sample is measured.
using bench::Round;
std::vector<Round> rounds_of_pairs(const std::vector<int>& ranks_of_hosts);

// Starts `tutti run ... -- tutti doctor-rank` and returns its result. Ends the job after a timeout.
// `dealt`: result of with_ranks(), or empty for this host.
JobResult run_job(int ranks, const std::vector<Host>& dealt);

// Runs one rank of the test job; rank 0 writes the result to standard output. `dealt` as in
// run_job().
int run_doctor_rank(const std::vector<Host>& dealt);

}  // namespace tutti::tool
