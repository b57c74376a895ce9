// Predicts the time and memory of a training step of ranks on this host, from profiles of the
// model's units.
//
// If there are more ranks than processors, they take turns. Computation that all ranks do then
// takes as long as the processors need for it, and a pipeline's idle ranks cost nothing while
// others have work.
#pragma once

#include <vector>

#include "training/pipeline/profile.h"
#include "training/planner/local/host_prices.h"
#include "training/planner/memory.h"
#include "training/planner/step_time.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

struct LocalStep {
  StepTime time;
  std::vector<MemoryUse> memory;  // by stage: memory of a rank
};

// Predicts a step. `profile`: profile of the first rank of each stage, for the run's micro-batch.
// `at_once`: number of ranks that compute at the same time.
LocalStep local_step(const RunOptions& settled, const MeshPlace& place,
                     const pipeline::Profile& profile, int at_once, HostPrices& prices);

// Returns the seconds of a step for each of the model's units: computation, messages, gradient sums
// and update. For a run without a pipeline. Takes the arguments of local_step().
std::vector<double> unit_seconds(const RunOptions& settled, const MeshPlace& place,
                                 const pipeline::Profile& profile, int at_once, HostPrices& prices);

}  // namespace tutti::training::planner
