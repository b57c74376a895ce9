// A job of the doctor's own: what ranks do that have no other work. Collectives with known answers,
// and how fast pairs of ranks are.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/pairs.h"
#include "tools/doctor/facts.h"
#include "tools/launcher/hosts.h"

namespace tutti::tool {

// The hosts that get ranks of a job, with as many slots as they get: so dealt, all of them are
// taken. Without hosts: this one.
std::vector<Host> with_ranks(int ranks, const std::vector<Host>& hosts);
std::vector<int> ranks_of(const std::vector<Host>& dealt);

// Which pairs are measured: each round's at a time, since they share nobody. Between hosts a rank
// of each; within a host each with each. Of very many only some.
using bench::Round;
std::vector<Round> rounds_of_pairs(const std::vector<int>& ranks_of_hosts);

// Starts `tutti run ... -- tutti doctor-rank` and hears what comes of it. Ends it when it takes far
// too long. `dealt`: with_ranks(), or empty for this host.
JobResult run_job(int ranks, const std::vector<Host>& dealt);

// One of its ranks; rank 0 writes the result on standard output. `dealt` as in run_job().
int run_doctor_rank(const std::vector<Host>& dealt);

}  // namespace tutti::tool
