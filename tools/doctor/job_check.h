// A job of the doctor's own: what ranks do that have no other work. Collectives with known answers,
// and how fast pairs of ranks are.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/facts.h"

namespace tutti::tool {

// How `tutti run` deals ranks to hosts.
std::vector<int> ranks_of_hosts(int ranks, size_t hosts);

// Which pairs are measured: each round's at a time, since they share nobody. Between hosts a rank
// of each; within a host each with each. Of very many only some.
using Round = std::vector<std::pair<int, int>>;
std::vector<Round> rounds_of_pairs(const std::vector<int>& ranks_of_hosts);

// Starts `tutti run ... -- tutti doctor-rank` and hears what comes of it. Ends it when it takes far
// too long. `hosts`: empty for this one.
JobResult run_job(int ranks, const std::vector<std::string>& hosts);

// One of its ranks; rank 0 writes the result on standard output. `hosts`: names, at least one.
int run_doctor_rank(const std::vector<std::string>& hosts);

}  // namespace tutti::tool
