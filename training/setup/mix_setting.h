// --mix: division of a model's layers over the tensor-parallel ranks (models/mix.h).
#pragma once

#include "training/models/mix.h"
#include "training/setup/options.h"

namespace tutti::training {

// Returns true if the run's model has layers that can be mixed.
bool takes_mix(const RunOptions& options);
// Returns the mix of a run, reading its file if it names one. Returns an empty mix if the run has
// none, one tensor-parallel rank, or another kind of model. Throws Error(invalid_argument) for
// invalid mixes, Error(system) for a file that cannot be read, and Error(unsupported) for
// kSearchedMix.
Mix mix_of(const RunOptions& options);
// Replaces the setting by one letter per layer of the model, so that every rank and every
// checkpoint contains the letters. Throws as mix_of() does, and Error(unsupported) for options that
// cannot be combined with a mix.
void settle_mix(RunOptions& options);

}  // namespace tutti::training
