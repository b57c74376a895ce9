// Loss of the last unit of a regression: squared errors of predictions with the micro-batch's float
// targets. A step's loss is their mean over samples and outputs.
#pragma once

#include "training/core/pass.h"

namespace tutti::training {

// Keeps state for backward: one object per micro-batch in flight.
class SquaredError {
 public:
  // predictions: samples x outputs. Sets pass.loss if the micro-batch has float targets; the sum is
  // in double, in order. Returns the predictions, which backward overwrites. Throws
  // Error(invalid_argument) for a wrong number of targets.
  Tensor forward(Pass& pass, Tensor predictions);

  // Writes pass.loss_scale * d(sum of squared errors)/dpredictions over the predictions.
  Tensor backward(Pass& pass) const;

 private:
  Tensor predictions_;
  Tensor errors_;  // predictions - targets, in value_type
};

}  // namespace tutti::training
