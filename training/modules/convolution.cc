#include "training/modules/convolution.h"

#include <cmath>

#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

ConvolutionShape checked(const ImageShape& input, const ConvolutionOptions& options) {
  const ConvolutionShape shape{.input = input,
                               .window = {.height = options.kernel,
                                          .width = options.kernel,
                                          .stride = options.stride,
                                          .padding = options.padding},
                               .outputs = options.outputs};
  static_cast<void>(shape.output());  // throws for what does not fit
  return shape;
}

}  // namespace

Convolution::Convolution(ParameterTable& table, const std::string& name, const ImageShape& input,
                         const ConvolutionOptions& options)
    : shape_(checked(input, options)) {
  const auto fan_in = static_cast<double>(input.channels * options.kernel * options.kernel);
  weight_ =
      table.add(name + ".weight", {options.outputs, input.channels, options.kernel, options.kernel},
                {Initial::Kind::normal, std::sqrt(2 / fan_in)});
  if (options.bias) bias_ = table.add(name + ".bias", {options.outputs}, {});
}

double Convolution::multiplications() const {
  return static_cast<double>(output().size() * shape_.input.channels * shape_.window.height *
                             shape_.window.width);
}

Tensor Convolution::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  saved.input = input;
  const Tensor result = pass.arena.take(input.dtype, input.rows, output().size());
  convolution(shape_, input, weight_->value,
              bias_ == nullptr ? ConstTensor{} : ConstTensor(bias_->value), result, pass.arena);
  return result;
}

Tensor Convolution::backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  saved.output_gradient = output_gradient;
  const Tensor input_gradient =
      pass.arena.take(output_gradient.dtype, output_gradient.rows, shape_.input.size());
  convolution_backward_input(shape_, output_gradient, weight_->value, input_gradient, pass.arena);
  return input_gradient;
}

void Convolution::backward_weight(Pass& pass, const Saved& saved) const {
  const ConstTensor gradient = saved.output_gradient;
  convolution_backward_weight(shape_, saved.input, gradient, weight_->gradient, pass.arena);
  if (bias_ == nullptr) return;
  add_column_sums(gradient.reshaped(gradient.rows * output().pixels(), shape_.outputs),
                  bias_->gradient, pass.arena);
}

Tensor Convolution::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor input_gradient = backward_input(pass, output_gradient, saved);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

void Convolution::backward_first(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  saved.output_gradient = output_gradient;
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
}

}  // namespace tutti::training
