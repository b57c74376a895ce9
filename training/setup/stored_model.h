// Finds the stored model from which a run continues, so that its configuration need not be
// repeated.
#pragma once

#include "base/json.h"

namespace tutti::training {

// Returns the configuration of the model that checkpoint.initial of a run's configuration names, or
// of the run that is resumed. Returns null if there is none, or if the configuration names another
// kind of model. Throws Error if checkpoint.initial cannot be read.
Json stored_model(const Json& run);

}  // namespace tutti::training
