// Completes options, once the number of ranks and the data are known.
#pragma once

#include <cstdint>

#include "training/setup/options.h"

namespace tutti::training {

// Completes `options`, in particular options.training: replaces defaults and settings that depend
// on the number of ranks, on the model or on the data by their values. `examples`: number of
// training examples. Throws Error(invalid_argument) or Error(unsupported) for options that cannot
// be combined.
void settle(RunOptions& options, int ranks, uint64_t examples);

}  // namespace tutti::training
