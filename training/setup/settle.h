// What options leave open, once the number of ranks and the data are known.
#pragma once

#include <cstdint>

#include "training/setup/options.h"

namespace tutti::training {

// Completes options.training: sizes of the run and of steps, on so many ranks. Throws
// Error(invalid_argument) for options that do not go together.
void settle(RunOptions& options, int ranks, uint64_t examples);

}  // namespace tutti::training
