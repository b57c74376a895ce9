// The activation: smooth, so that tiny differences in the input stay tiny in every derivative.
#pragma once

#include "training/module.h"

namespace tutti::training {

class Gelu : public Module {
 public:
  ConstMatrix forward(ConstMatrix input) override;
  ConstMatrix backward_input(ConstMatrix output_gradient) override;

 private:
  ConstMatrix input_;
  MatrixBuffer output_;
  MatrixBuffer input_gradient_;
};

}  // namespace tutti::training
