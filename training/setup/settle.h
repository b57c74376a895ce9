// Completes options, once the number of ranks and the data are known.
#pragma once

#include <cstdint>

#include "training/setup/options.h"

namespace tutti::training {

// Completes options.training with the sizes of the run and of steps, for this number of ranks.
// Throws Error(invalid_argument) for options that cannot be combined.
void settle(RunOptions& options, int ranks, uint64_t examples);

}  // namespace tutti::training
