// --mix: how each layer of a model is divided over the tensor ranks (models/mix.h).
#pragma once

#include "training/models/mix.h"
#include "training/setup/options.h"

namespace tutti::training {

// True if the run's model has layers that can be mixed.
bool takes_mix(const RunOptions& options);
// The mix of a run, whose file is read if it names one. Empty where the run says nothing, has one
// tensor rank, or has another kind of model. Throws Error(invalid_argument) for what is no mix,
// Error(system) for a file that cannot be read, and Error(unsupported) for kSearchedMix.
Mix mix_of(const RunOptions& options);
// Replaces what the setting says by the letters of each of the model's layers, so that every rank
// and every checkpoint has them. Throws as mix_of(), and Error(unsupported) beside what a mix does
// not go with.
void settle_mix(RunOptions& options);

}  // namespace tutti::training
