// Time that data-parallel ranks take for a number of updates on a network, in virtual time, for
// each way in which they keep together (sync_schedule.h), with slow ranks.
//
// `async`: the servers apply each worker's gradients by themselves, and whoever is free takes the
// next part of a step. U updates of n workers are done when the workers together have done n U
// parts: each worker's chain of steps is played until then, however the parts fall to workers.
//
//   worker 0   [part][part][part][part]│      n U = 5: four parts of worker 0, one of worker 1,
//   worker 1   [part             ][part│ ...  whose second part does not count
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/simulate/simulate.h"
#include "topology/domain.h"
#include "topology/networks/network.h"
#include "training/simulate/sync_schedule.h"

namespace tutti::training {

struct SimulatedSync {
  SimulationResult network;     // its time_us: until all workers have the values of all updates
  std::vector<int64_t> steps;   // by worker: steps of training that it completed
  std::vector<double> waiting;  // by worker: the share of that time in which it does not compute
};

// Throws as make_sync_schedule() and simulate() do. `options` without stops_after.
SimulatedSync simulate_sync(const SyncWork& work, const std::vector<Place>& places,
                            Network& network, const SimulationOptions& options,
                            int64_t most_steps = 40'000'000);

}  // namespace tutti::training
