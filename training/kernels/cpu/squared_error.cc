#include "training/kernels/cpu/kernels.h"

namespace tutti::training::cpu {
namespace {

// Replaces predictions by errors, and returns the sum of their squares.
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

Later<Loss> squared_error(ConstTensor predictions, std::span<const float> targets, Tensor errors) {
  require_shapes(
      std::ssize(targets) == errors.size() && errors.dtype == value_type(predictions.dtype),
      "squared_error");
  cpu::convert(predictions, errors);
  return Loss{.sum = errors.dtype == DType::f64 ? subtract(errors.values<double>(), targets)
                                                : subtract(errors.values<float>(), targets)};
}

}  // namespace tutti::training::cpu
