#include "training/modules/linear.h"

#include <algorithm>
#include <cmath>

#include "training/kernels.h"
#include "training/random.h"

namespace tutti::training {

std::vector<ParameterSpec> Linear::parameter_specs() const {
  return {{"weight", {outputs_, inputs_}}, {"bias", {outputs_}}};
}

void Linear::bind(std::span<const Parameter> parameters) {
  weight_ = parameters[0];
  bias_ = parameters[1];
}

void Linear::initialize(uint64_t seed, uint64_t stream) {
  const float limit = gain_ * std::sqrt(3.0f / static_cast<float>(inputs_));
  for (size_t i = 0; i < weight_.value.size(); ++i) {
    weight_.value[i] = scale_symmetric(random_bits(seed, stream, i), limit);
  }
  std::ranges::fill(bias_.value, 0.0f);
}

ConstMatrix Linear::forward(ConstMatrix input) {
  input_ = input;
  const Matrix output = output_.resize(input.rows, outputs_);
  gemm(input, Transpose::no, as_matrix(weight_.value), Transpose::yes, output, GemmMode::overwrite,
       bias_.value);
  return output;
}

ConstMatrix Linear::backward_input(ConstMatrix output_gradient) {
  const Matrix input_gradient = input_gradient_.resize(output_gradient.rows, inputs_);
  gemm(output_gradient, Transpose::no, as_matrix(weight_.value), Transpose::no, input_gradient);
  return input_gradient;
}

void Linear::backward_weight(ConstMatrix output_gradient) {
  gemm(output_gradient, Transpose::yes, input_, Transpose::no, as_matrix(weight_.gradient),
       GemmMode::accumulate);
  for (int64_t row = 0; row < output_gradient.rows; ++row) {
    const std::span<const float> gradient = output_gradient.row(row);
    for (size_t i = 0; i < gradient.size(); ++i) bias_.gradient[i] += gradient[i];
  }
}

}  // namespace tutti::training
