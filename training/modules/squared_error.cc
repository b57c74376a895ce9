#include "training/modules/squared_error.h"

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/squared_error.h"

namespace tutti::training {
Tensor SquaredError::forward(Pass& pass, Tensor predictions) {
  predictions_ = predictions;
  const std::span<const float> targets = pass.batch->float_targets;
  if (targets.empty()) return predictions;
  if (std::ssize(targets) != predictions.size()) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("the micro-batch has ", targets.size(), " float targets, but the model predicts ",
            predictions.rows, " x ", predictions.cols, " numbers"),
        {.cause = "the number of model outputs differs from the number of targets",
         .remedy = "use a model with as many outputs as a sample has float targets"});
  }
  errors_ = pass.arena.take(value_type(predictions.dtype), predictions.rows, predictions.cols);
  pass.loss = squared_error(predictions, targets, errors_);
  return predictions;
}

Tensor SquaredError::backward(Pass& pass) const {
  scale(errors_, errors_, 2 * pass.loss_scale);
  convert(errors_, predictions_);
  return predictions_;
}

}  // namespace tutti::training
