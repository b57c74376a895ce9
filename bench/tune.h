// Calibrates a cost model. Times a few calls, then searches for the costs whose predictions are
// closest to those times.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/cost/cost.h"
#include "collectives/program/program.h"

namespace tutti::bench {

// One timed call (f32, sum).
struct Observation {
  Collective collective = Collective::all_reduce;
  std::string algorithm;
  int ranks = 2;
  int hosts = 1;                    // number of hosts, each with the same number of ranks
  PathClass path = PathClass::shm;  // path between hosts; on a single host, between ranks
  uint64_t bytes = 0;               // size of the call as `tutti bench` counts it
  double seconds = 0;               // median time of the slowest rank
};

// Returns the calls of two ranks that determine the costs of a path class.
std::vector<Observation> pair_observations(PathClass path);
// Returns calls with two ranks on each of two hosts; the ranks of a host share its card.
std::vector<Observation> shared_observations(PathClass path);
// Returns calls with more ranks than cores, over shared memory.
std::vector<Observation> crowd_observations(int ranks);
// Returns calls of every algorithm of every collective, 8 B to 64 MiB, for checking predictions.
std::vector<Observation> all_observations(int ranks, PathClass path);

// Collective. Times the calls and sets their seconds. Skips larger sizes of an algorithm once a
// call took over 0.2 s, and all calls after `within` has passed on rank 0; their seconds remain 0.
void measure(Communicator& comm, std::vector<Observation>& observations,
             std::chrono::nanoseconds within);
// Merges repeated measurements of the same calls, keeping the shortest time of each: other load on
// the machine only ever makes calls slower.
void keep_least(std::vector<Observation>& observations, const std::vector<Observation>& more);

double predict(const Observation& observation, const CostModel& model);

// Returns the costs that fit best. The search starts from the costs of `model`. Costs of fabrics
// that were not observed do not change.
CostModel fit(CostModel model, std::span<const Observation> observations);

// Returns the prediction errors of the model: the errors on the calls to which it was fitted, plus
// an allowance for the machine's drift over time.
PredictionErrors errors_left(std::span<const Observation> observations, const CostModel& model);

// Returns one line per observation. read() throws Error(invalid_argument) for a malformed line.
std::string write(std::span<const Observation> observations);
std::vector<Observation> read(const std::string& text);

}  // namespace tutti::bench
