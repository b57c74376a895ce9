// Costs of mixes of a model's layers (models/mix.h) on ranks of this host, from times of its layers
// that are measured here.
#pragma once

#include "training/planner/mix_costs.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

// Times the layers of a run's model, each in each way to divide it and the layer before, and prices
// their messages, gradient sums and updates as local_step() does. The run's own mix is of no
// account. Blocks for about as long as a few dozen micro-batches take. Throws Error(unsupported)
// for a model whose layers cannot be mixed, and for too few tensor ranks.
MixCosts measured_mix_costs(const RunOptions& run, int ranks);

// A run with a mix, as if it had been given.
RunOptions with_mix(const RunOptions& run, const Mix& mix);

}  // namespace tutti::training::planner
