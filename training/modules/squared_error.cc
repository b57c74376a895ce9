#include "training/modules/squared_error.h"

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

// Predictions become errors. Returns the sum of their squares.
template <typename Value>
double subtract(std::span<Value> values, std::span<const float> targets) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] -= static_cast<Value>(targets[i]);
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

Tensor SquaredError::forward(Pass& pass, Tensor predictions) {
  predictions_ = predictions;
  const std::span<const float> targets = pass.batch->float_targets;
  if (targets.empty()) return predictions;
  if (std::ssize(targets) != predictions.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the micro-batch has ", targets.size(), " float targets, the model predicts ",
                    predictions.rows, " x ", predictions.cols, " numbers"),
                {.cause = "the model has another number of outputs than the data",
                 .remedy = "give the model as many outputs as a sample has float targets"});
  }
  errors_ = pass.arena.take(value_type(predictions.dtype), predictions.rows, predictions.cols);
  convert(predictions, errors_);
  pass.loss_sum = errors_.dtype == DType::f64 ? subtract(errors_.values<double>(), targets)
                                              : subtract(errors_.values<float>(), targets);
  return predictions;
}

Tensor SquaredError::backward(Pass& pass) const {
  scale(errors_, errors_, 2 * pass.loss_scale);
  convert(errors_, predictions_);
  return predictions_;
}

}  // namespace tutti::training
