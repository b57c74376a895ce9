// Squared errors of predictions.
#pragma once

#include <span>

#include "training/core/later.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Writes errors = predictions - targets, in value_type; both are contiguous. Returns the sum of
// their squares, in double and in order.
Later<Loss> squared_error(ConstTensor predictions, std::span<const float> targets, Tensor errors);

}  // namespace tutti::training
