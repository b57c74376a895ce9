// What the last unit of a regression does with its predictions: squared errors of the micro-batch's
// float targets, into the pass. The loss of a step is their mean over samples and outputs.
#pragma once

#include "training/core/pass.h"

namespace tutti::training {

// What it keeps is its own `saved`: one for each micro-batch under way.
class SquaredError {
 public:
  // predictions: samples x outputs. Sets pass.loss, if the micro-batch has float targets; the
  // sum runs in double precision, in order. Returns the predictions, which backward overwrites.
  // Throws Error(invalid_argument) for another number of targets.
  Tensor forward(Pass& pass, Tensor predictions);

  // pass.loss_scale * d(sum of squared errors)/dpredictions, in the predictions' place.
  Tensor backward(Pass& pass) const;

 private:
  Tensor predictions_;
  Tensor errors_;  // predictions - targets, in value_type
};

}  // namespace tutti::training
