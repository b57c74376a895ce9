// Finds the stored model from which a run continues, so that its configuration need not be
// repeated.
#pragma once

#include "base/json.h"

namespace tutti::training {

// Returns the configuration of the model of the run that is resumed or, if there is no such run
// yet, of the model in checkpoint.initial. `run`: a run's configuration, which contains
// checkpoint.initial. Returns null if there is no stored model, or if `run` has another kind of
// model. Throws Error if checkpoint.initial cannot be read.
Json stored_model(const Json& run);

}  // namespace tutti::training
