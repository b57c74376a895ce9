#include "training/modules/embedding.h"

#include <algorithm>
#include <cmath>

#include "training/random.h"

namespace tutti::training {

std::vector<ParameterSpec> Embedding::parameter_specs() const {
  return {{"weight", {kBytes, width_}}};
}

void Embedding::bind(std::span<const Parameter> parameters) { weight_ = parameters[0]; }

void Embedding::initialize(uint64_t seed, uint64_t stream) {
  const float limit = std::sqrt(3.0f);
  for (size_t i = 0; i < weight_.value.size(); ++i) {
    weight_.value[i] = scale_symmetric(random_bits(seed, stream, i), limit);
  }
}

ConstMatrix Embedding::forward(std::span<const uint8_t> contexts) {
  contexts_ = contexts;
  const Matrix output =
      output_.resize(static_cast<int64_t>(contexts.size()) / context_, context_ * width_);
  float* out = output.data;
  for (uint8_t byte : contexts) {
    out = std::copy_n(weight_.value.data() + byte * width_, width_, out);
  }
  return output;
}

void Embedding::backward_weight(ConstMatrix output_gradient) {
  const float* gradient = output_gradient.data;
  for (uint8_t byte : contexts_) {
    float* sum = weight_.gradient.data() + byte * width_;
    for (int64_t i = 0; i < width_; ++i) sum[i] += gradient[i];
    gradient += width_;
  }
}

}  // namespace tutti::training
