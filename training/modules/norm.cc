#include "training/modules/norm.h"

#include "training/kernels/elementwise.h"
#include "training/kernels/normalization.h"

namespace tutti::training {

Norm::Norm(ParameterTable& table, const std::string& name, int64_t width, NormKind kind,
           double epsilon, const Placement& placement)
    : width_(width),
      kind_(kind),
      epsilon_(epsilon),
      gain_(table.add(name + ".weight", {width}, {Initial::Kind::constant, 1}, placement)) {
  if (kind == NormKind::layer) bias_ = table.add(name + ".bias", {width}, {}, placement);
}

Tensor Norm::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  require_shapes(input.cols == width_, "norm");
  const Tensor output = pass.arena.take(input.dtype, input.rows, width_);
  saved.input = input;
  saved.statistics =
      pass.arena.take(value_type(input.dtype), input.rows, kind_ == NormKind::layer ? 2 : 1);
  if (kind_ == NormKind::layer) {
    layer_norm(input, gain_->value, bias_->value, epsilon_, output, saved.statistics);
  } else {
    rms_norm(input, gain_->value, epsilon_, output, saved.statistics);
  }
  return output;
}

Tensor Norm::backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const ConstTensor input = saved.input;
  saved.output_gradient = output_gradient;
  const Tensor input_gradient = pass.arena.take(input.dtype, input.rows, width_);
  const auto run = kind_ == NormKind::layer ? layer_norm_backward : rms_norm_backward;
  run(input, gain_->value, output_gradient, saved.statistics, input_gradient);
  return input_gradient;
}

void Norm::add_gradients(Pass& pass, const Saved& saved, const Share& rows, Tensor gain,
                         Tensor bias) const {
  const ConstTensor x = saved.input.row_range(rows.first, rows.count);
  const ConstTensor dy = saved.output_gradient.row_range(rows.first, rows.count);
  const ConstTensor statistics = saved.statistics.row_range(rows.first, rows.count);
  if (kind_ == NormKind::layer) {
    layer_norm_gradients(x, dy, statistics, gain, bias, pass.arena);
  } else {
    rms_norm_gradients(x, dy, statistics, gain, pass.arena);
  }
}

void Norm::backward_weight(Pass& pass, const Saved& saved) const {
  add_gradients(pass, saved, {0, saved.input.rows}, gain_->gradient,
                bias_ == nullptr ? Tensor{} : bias_->gradient);
}

Tensor Norm::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor input_gradient = backward_input(pass, output_gradient, saved);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

}  // namespace tutti::training
