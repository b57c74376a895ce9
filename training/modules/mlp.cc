#include "training/modules/mlp.h"

#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

bool is_swiglu(const MlpOptions& options) { return options.kind == MlpKind::swiglu; }

MlpOptions named(MlpOptions options) {
  if (!options.names.empty()) return options;
  options.names = {"c_fc", "c_proj"};
  if (is_swiglu(options)) options.names = {"w_gate", "w_up", "w_down"};
  return options;
}

// SwiGLU: gate and up are the halves of one contiguous tensor of twice as many rows.
Tensor half(Tensor both, int64_t which) {
  return both.row_range(which * both.rows / 2, both.rows / 2);
}

Tensor as_halves(Tensor before) { return before.reshaped(2 * before.rows, before.cols / 2); }

}  // namespace

Mlp::Mlp(ParameterTable& table, const std::string& name, const MlpOptions& options)
    : options_(named(options)),
      in_(table, cat(name, '.', options_.names.front()), options.width, options.hidden,
          {.bias = options.bias, .cut = LinearCut::by_outputs}),
      up_(is_swiglu(options)
              ? std::optional<Linear>(
                    std::in_place, table, cat(name, '.', options_.names[1]), options.width,
                    options.hidden,
                    LinearOptions{.bias = options.bias, .cut = LinearCut::by_outputs})
              : std::nullopt),
      out_(table, cat(name, '.', options_.names.back()), options.hidden, options.width,
           {.bias = options.bias,
            .deviation = options.output_deviation,
            .cut = LinearCut::by_inputs}) {
  options_.hidden /= table.mesh().size(Axis::tensor);
}

int64_t Mlp::before_width() const { return up_ ? 2 * options_.hidden : options_.hidden; }

void Mlp::project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const {
  saved.before = before;
  if (!up_) {
    in_.forward(pass, input, saved.in, before);
    return;
  }
  in_.forward(pass, input, saved.in, half(as_halves(before), 0));
  up_->forward(pass, input, saved.up, half(as_halves(before), 1));
}

Tensor Mlp::activation(Pass& pass, const Saved& saved) const {
  const Tensor active = pass.arena.take(saved.before.dtype, saved.before.rows, options_.hidden);
  if (up_) {
    swiglu(half(as_halves(saved.before), 0), half(as_halves(saved.before), 1), active);
  } else {
    gelu(saved.before, active);
  }
  return active;
}

void Mlp::activate(Pass& pass, Saved& saved, Tensor output) const {
  out_.forward(pass, activation(pass, saved), saved.out, output);
}

void Mlp::recompute(Pass& pass, Saved& saved) const { saved.out.input = activation(pass, saved); }

Tensor Mlp::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor active_gradient = out_.backward(pass, output_gradient, saved.out);
  const Tensor before = saved.before;
  if (!up_) {
    gelu_backward(before, active_gradient, active_gradient);
    return in_.backward(pass, active_gradient, saved.in);
  }
  const Tensor gradient = as_halves(pass.arena.take(before.dtype, before.rows, before.cols));
  swiglu_backward(half(as_halves(before), 0), half(as_halves(before), 1), active_gradient,
                  half(gradient, 0), half(gradient, 1));
  const Tensor through_gate = in_.backward(pass, half(gradient, 0), saved.in);
  const Tensor through_up = up_->backward(pass, half(gradient, 1), saved.up);
  add(through_gate, through_up, through_gate);
  return through_gate;
}

}  // namespace tutti::training
