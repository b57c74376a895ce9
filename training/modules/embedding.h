// Looks up one vector for each byte of a context and concatenates them.
#pragma once

#include "training/module.h"

namespace tutti::training {

// Not a Module: its input has no gradient.
class Embedding : public Parametrized {
 public:
  static constexpr int64_t kBytes = 256;

  // `context` bytes per sample, `width` values per byte, uniform with variance 1 at the start.
  Embedding(int64_t context, int64_t width) : context_(context), width_(width) {}

  std::vector<ParameterSpec> parameter_specs() const override;
  void bind(std::span<const Parameter> parameters) override;
  void initialize(uint64_t seed, uint64_t stream) override;

  // contexts: samples x context bytes, alive until the backward pass is done. Returns
  // samples x (context * width).
  ConstMatrix forward(std::span<const uint8_t> contexts);
  void backward_weight(ConstMatrix output_gradient);

 private:
  int64_t context_;
  int64_t width_;
  Parameter weight_;
  std::span<const uint8_t> contexts_;
  MatrixBuffer output_;
};

}  // namespace tutti::training
