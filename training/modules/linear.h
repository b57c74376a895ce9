// y = x W^T + b, with W as (outputs x inputs).
#pragma once

#include "training/module.h"

namespace tutti::training {

class Linear : public Module {
 public:
  // Weights start uniform with the variance gain^2 / inputs, the bias at 0.
  Linear(int64_t inputs, int64_t outputs, float gain = 1.0f)
      : inputs_(inputs), outputs_(outputs), gain_(gain) {}

  std::vector<ParameterSpec> parameter_specs() const override;
  void bind(std::span<const Parameter> parameters) override;
  void initialize(uint64_t seed, uint64_t stream) override;

  ConstMatrix forward(ConstMatrix input) override;
  ConstMatrix backward_input(ConstMatrix output_gradient) override;
  void backward_weight(ConstMatrix output_gradient) override;

 private:
  Matrix as_matrix(std::span<float> values) const { return {values.data(), outputs_, inputs_}; }

  int64_t inputs_;
  int64_t outputs_;
  float gain_;
  Parameter weight_;
  Parameter bias_;
  ConstMatrix input_;
  MatrixBuffer output_;
  MatrixBuffer input_gradient_;
};

}  // namespace tutti::training
