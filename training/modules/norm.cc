#include "training/modules/norm.h"

#include "training/kernels/elementwise.h"
#include "training/kernels/loops.h"

namespace tutti::training {

Norm::Norm(ParameterTable& table, const std::string& name, int64_t width, NormKind kind,
           double epsilon)
    : width_(width),
      kind_(kind),
      epsilon_(epsilon),
      gain_(table.add(name + ".weight", {width}, {Initial::Kind::constant, 1})) {
  if (kind == NormKind::layer) bias_ = table.add(name + ".bias", {width}, {});
}

Tensor Norm::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const Tensor& gain = gain_->value;
  require_shapes(input.cols == width_ && input.contiguous() && gain.cols == width_ &&
                     gain.dtype == input.dtype,
                 "norm");
  const kernels::Loops& loops = kernels::loops(input.dtype);
  const Tensor output = pass.arena.take(input.dtype, input.rows, width_);
  saved.input = input;
  saved.statistics =
      pass.arena.take(value_type(input.dtype), input.rows, kind_ == NormKind::layer ? 2 : 1);
  if (kind_ == NormKind::layer) {
    loops.layer_norm(input.data, gain_->value.data, bias_->value.data, output.data,
                     saved.statistics.data, input.rows, width_, epsilon_);
  } else {
    loops.rms_norm(input.data, gain_->value.data, output.data, saved.statistics.data, input.rows,
                   width_, epsilon_);
  }
  return output;
}

Tensor Norm::backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const ConstTensor input = saved.input;
  saved.output_gradient = output_gradient;
  const kernels::Loops& loops = kernels::loops(input.dtype);
  const Tensor input_gradient = pass.arena.take(input.dtype, input.rows, width_);
  const auto run = kind_ == NormKind::layer ? loops.layer_norm_backward : loops.rms_norm_backward;
  run(input.data, gain_->value.data, output_gradient.data, saved.statistics.data,
      input_gradient.data, input.rows, width_);
  return input_gradient;
}

void Norm::backward_weight(Pass& pass, const Saved& saved) const {
  const ArenaScope scope(pass.arena);
  const ConstTensor input = saved.input;
  const kernels::Loops& loops = kernels::loops(input.dtype);
  const Tensor gain_sums = zero_values(input.dtype, width_, pass.arena);
  if (kind_ == NormKind::layer) {
    const Tensor bias_sums = zero_values(input.dtype, width_, pass.arena);
    loops.layer_norm_gradients(input.data, saved.output_gradient.data, saved.statistics.data,
                               gain_sums.data, bias_sums.data, input.rows, width_);
    add_values(bias_sums, bias_->gradient);
  } else {
    loops.rms_norm_gradients(input.data, saved.output_gradient.data, saved.statistics.data,
                             gain_sums.data, input.rows, width_);
  }
  add_values(gain_sums, gain_->gradient);
}

Tensor Norm::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor input_gradient = backward_input(pass, output_gradient, saved);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

}  // namespace tutti::training
