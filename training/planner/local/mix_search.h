// Predicts the costs of mixes of a model's layers (models/mix.h) on ranks of this host, from
// measured times of the layers.
#pragma once

#include "training/planner/mix_costs.h"
#include "training/setup/options.h"

namespace tutti::training::planner {

// Returns the costs of all mixes. Times the layers of a run's model for each pair of a layer's
// division and the previous layer's division, and predicts their messages, gradient sums and
// updates as local_step() does. Ignores the run's own mix. Blocks for about as long as a few dozen
// micro-batches take. Throws Error(unsupported) for a model whose layers cannot be mixed, and for
// too few tensor-parallel ranks.
MixCosts measured_mix_costs(const RunOptions& run, int ranks);

// Returns the run with this mix as an option.
RunOptions with_mix(const RunOptions& run, const Mix& mix);

}  // namespace tutti::training::planner
