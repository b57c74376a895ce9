// --mix: division of a model's layers over the tensor-parallel ranks (models/mix.h).
#pragma once

#include "training/models/mix.h"
#include "training/setup/options.h"

namespace tutti::training {

// Returns true if the run's model has layers that can be mixed.
bool takes_mix(const RunOptions& options);
// Returns the mix that --mix sets; if the setting is the name of a file, reads the file. Returns an
// empty mix if --mix is not set, if there is only one tensor-parallel rank, or if the model has no
// layers that can be mixed. Throws Error(invalid_argument) for invalid mixes, Error(system) for a
// file that cannot be read, and Error(unsupported) for kSearchedMix.
Mix mix_of(const RunOptions& options);
// Replaces options.mix by one letter per layer of the model, so that every rank and every
// checkpoint contains the letters; clears it if there is only one tensor-parallel rank or the model
// has no layers that can be mixed. Throws as mix_of() does, and Error(unsupported) if there are
// several pipeline stages.
void settle_mix(RunOptions& options);

}  // namespace tutti::training
