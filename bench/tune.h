// Calibrates a cost model: times a few calls, then searches for the costs with which the cost walk
// predicts those times best.
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
  int hosts = 1;                    // with equally many of them on each
  PathClass path = PathClass::shm;  // between hosts; on a single one, between ranks
  uint64_t bytes = 0;               // as `tutti bench` counts them
  double seconds = 0;               // the median of the slowest rank's
};

// Returns the calls of two ranks that determine the costs of a path class.
std::vector<Observation> pair_observations(PathClass path);
// Returns calls with two ranks on each of two hosts, which share the hosts' cards.
std::vector<Observation> shared_observations(PathClass path);
// Returns calls with more ranks than cores, over shared memory.
std::vector<Observation> crowd_observations(int ranks);
// Returns calls of every algorithm of every collective, 8 B to 64 MiB, for checking predictions.
std::vector<Observation> all_observations(int ranks, PathClass path);

// Times the calls and fills in their seconds. Skipped calls keep 0: those that would take long on a
// slow network, and all after `within` has passed on rank 0. Collective.
void measure(Communicator& comm, std::vector<Observation>& observations,
             std::chrono::nanoseconds within);
// Merges repeated measurements of the same calls, keeping the shortest time of each: other load on
// the machine only ever makes calls slower.
void keep_least(std::vector<Observation>& observations, const std::vector<Observation>& more);

double predict(const Observation& observation, const CostModel& model);

// Returns the costs that fit best, starting from those of `model`; fabrics that were not observed
// keep theirs.
CostModel fit(CostModel model, std::span<const Observation> observations);

// Returns the prediction errors of the model: those on the calls it was fitted to, plus an
// allowance for the machine's drift over time.
PredictionErrors errors_left(std::span<const Observation> observations, const CostModel& model);

// One line per observation; read() throws Error(invalid_argument) for a malformed line.
std::string write(std::span<const Observation> observations);
std::vector<Observation> read(const std::string& text);

}  // namespace tutti::bench
