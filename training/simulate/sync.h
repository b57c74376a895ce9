// Simulates the time of a number of updates by data-parallel ranks on a network, for each way of
// synchronization (sync_schedule.h), with stragglers.
//
// `async`: the servers apply each worker's gradients separately, and a free worker takes the next
// part of a step. U updates of n workers are complete when the workers together have done n U
// parts. Each worker's chain of steps is simulated until then, however the parts are distributed.
//
//   worker 0   [part][part][part][part][part]│   n U = 6: five parts of worker 0, one of worker 1,
//   worker 1   [part             ][part      │   whose second part does not count
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/simulate/simulate.h"
#include "topology/domain.h"
#include "topology/networks/network.h"
#include "training/simulate/sync_schedule.h"

namespace tutti::training {

struct SimulatedSync {
  // its time_us is the time until all workers have the values of all updates
  SimulationResult network;
  std::vector<int64_t> steps;   // by worker: completed training steps
  std::vector<double> waiting;  // by worker: fraction of the time without computation
};

// Simulates the updates. Throws as make_sync_schedule() and simulate() do. `options` must not set
// stops_after.
SimulatedSync simulate_sync(const SyncWork& work, const std::vector<Place>& places,
                            Network& network, const SimulationOptions& options,
                            int64_t most_steps = 40'000'000);

}  // namespace tutti::training
