// What the first unit of a model of numbers (images, measurements) begins with.
#pragma once

#include "training/core/pass.h"

namespace tutti::training {

// The micro-batch's features in the pass's type, samples x `width`, from its arena. Throws
// Error(invalid_argument) where the data have another width.
Tensor features_of(Pass& pass, int64_t width);

}  // namespace tutti::training
