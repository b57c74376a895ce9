#include "training/modules/gelu.h"

#include "training/kernels.h"

namespace tutti::training {

ConstMatrix Gelu::forward(ConstMatrix input) {
  input_ = input;
  const Matrix output = output_.resize(input.rows, input.cols);
  gelu(input, output);
  return output;
}

ConstMatrix Gelu::backward_input(ConstMatrix output_gradient) {
  const Matrix input_gradient = input_gradient_.resize(input_.rows, input_.cols);
  gelu_backward(input_, output_gradient, input_gradient);
  return input_gradient;
}

}  // namespace tutti::training
