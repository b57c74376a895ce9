// Creates valid random samples for a model, for measurements.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "training/data/data_set.h"

namespace tutti::training {

// Returns the samples. `model`: its complete configuration. Equal arguments give equal samples.
Batch random_batch(const Json& model, int64_t samples, int64_t targets_per_sample);

}  // namespace tutti::training
