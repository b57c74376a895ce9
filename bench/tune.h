// Finds the numbers of a cost model: times a few calls, then looks for the numbers with which the
// cost walk predicts those times best.
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

// One call that is, or was, timed. f32, sum.
struct Observation {
  Collective collective = Collective::all_reduce;
  std::string algorithm;
  int ranks = 2;
  int hosts = 1;                    // with equally many of them on each
  PathClass path = PathClass::shm;  // between hosts; on a single one, between ranks
  uint64_t bytes = 0;               // as `tutti bench` counts them
  double seconds = 0;               // the median of the slowest rank's
};

// What to time to find the numbers of a class of paths: calls of two ranks.
std::vector<Observation> pair_observations(PathClass path);
// Of two ranks on each of two hosts, which share their hosts' cards.
std::vector<Observation> shared_observations(PathClass path);
// And with more ranks than cores, over shared memory.
std::vector<Observation> crowd_observations(int ranks);
// Every algorithm of every collective, 8 B to 64 MiB: to see how well they are predicted.
std::vector<Observation> all_observations(int ranks, PathClass path);

// Fills in the seconds. Leaves them 0 where a call would take long on a slow network, and from when
// `within` has passed on rank 0. Collective.
void measure(Communicator& comm, std::vector<Observation>& observations,
             std::chrono::nanoseconds within);
// Several times of the same calls: the least of each, where any was measured. A machine that is
// shared with others is slow at times, never too fast.
void keep_least(std::vector<Observation>& observations, const std::vector<Observation>& more);

double predict(const Observation& observation, const CostModel& model);

// The numbers that fit best, beginning with those of `model`; of fabrics, only of those that were
// observed.
CostModel fit(CostModel model, std::span<const Observation> observations);

// How far off the model is: from the calls that it was fitted to, and further, as the machine will
// be slower or quicker at another time.
PredictionErrors errors_left(std::span<const Observation> observations, const CostModel& model);

// A line each; read() throws Error(invalid_argument) where a line is none.
std::string write(std::span<const Observation> observations);
std::vector<Observation> read(const std::string& text);

}  // namespace tutti::bench
