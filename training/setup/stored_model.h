// The model that a run goes on with, as it is stored: nobody has to say again what it is.
#pragma once

#include "base/json.h"

namespace tutti::training {

// The configuration of the model in what checkpoint.initial of a run's configuration names, or in
// the run that is resumed. Null without one, and where the configuration says that the model is of
// another kind. Throws Error for what checkpoint.initial names and cannot be read.
Json stored_model(const Json& run);

}  // namespace tutti::training
