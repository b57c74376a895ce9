// The loss of a regression's last unit: squared errors of predictions with the micro-batch's float
// targets. A step's loss is their mean over samples and outputs.
#pragma once

#include "training/core/pass.h"

namespace tutti::training {

// Computes the loss, and keeps state for backward, so each micro-batch in flight needs its own
// object.
class SquaredError {
 public:
  // Computes the loss of `predictions`, samples x outputs. Sets pass.loss if the micro-batch has
  // float targets; the sum is in double, in order. Returns the predictions, which backward
  // overwrites. Throws Error(invalid_argument) for a wrong number of targets.
  Tensor forward(Pass& pass, Tensor predictions);

  // Overwrites the predictions by pass.loss_scale * d(sum of squared errors)/dpredictions.
  Tensor backward(Pass& pass) const;

 private:
  Tensor predictions_;
  Tensor errors_;  // predictions - targets, in value_type
};

}  // namespace tutti::training
