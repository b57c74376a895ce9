// Squared errors of predictions.
#pragma once

#include <span>

#include "training/core/later.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Writes errors = predictions - targets, in value_type; `predictions` and `errors` are contiguous.
// Returns the sum of the squared errors, computed in double and in order.
Later<Loss> squared_error(ConstTensor predictions, std::span<const float> targets, Tensor errors);

}  // namespace tutti::training
