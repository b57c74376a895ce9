#include "training/modules/mlp.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "training/core/slices.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/rows.h"

namespace tutti::training {
namespace {

bool is_swiglu(const MlpOptions& options) { return options.kind == MlpKind::swiglu; }

MlpOptions named(MlpOptions options) {
  if (!options.names.empty()) return options;
  options.names = {"c_fc", "c_proj"};
  if (is_swiglu(options)) options.names = {"w_gate", "w_up", "w_down"};
  return options;
}

// Returns a half of a contiguous tensor that has SwiGLU's gate as half 0 and its up as half 1.
Tensor half(Tensor both, int64_t which) {
  return both.row_range(which * both.rows / 2, both.rows / 2);
}

Tensor as_halves(Tensor before) { return before.reshaped(2 * before.rows, before.cols / 2); }

}  // namespace

Mlp::Mlp(ParameterTable& table, const std::string& name, const MlpOptions& options)
    : options_(named(options)),
      in_(table, cat(name, '.', options_.names.front()), options.width, options.hidden,
          {.bias = options.bias, .cut = LinearCut::by_outputs, .owner = options.owner}),
      up_(is_swiglu(options)
              ? std::optional<Linear>(
                    std::in_place, table, cat(name, '.', options_.names[1]), options.width,
                    options.hidden,
                    LinearOptions{
                        .bias = options.bias, .cut = LinearCut::by_outputs, .owner = options.owner})
              : std::nullopt),
      out_(table, cat(name, '.', options_.names.back()), options.hidden, options.width,
           {.bias = options.bias,
            .deviation = options.output_deviation,
            .cut = LinearCut::by_inputs,
            .owner = options.owner}) {
  options_.hidden = in_.outputs();
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

void Mlp::activate(Pass& pass, Saved& saved) const {
  const Tensor active = pass.arena.take(saved.before.dtype, saved.before.rows, options_.hidden);
  if (up_) {
    swiglu(half(as_halves(saved.before), 0), half(as_halves(saved.before), 1), active);
  } else {
    gelu(saved.before, active);
  }
  saved.out.input = active;
}

void Mlp::finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns) const {
  out_.forward(pass, saved.out.input, saved.out, output, turns);
}

void Mlp::set_input(Saved& saved, ConstTensor input) const {
  saved.in.input = input;
  saved.up.input = input;
}

Tensor Mlp::backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                     RowsInTurn* turns) const {
  return backward_hidden(pass, out_.backward(pass, output_gradient, saved.out), saved, turns);
}

// Writes the gradients of the rows' weights to `gradients`. Each is the dot product of a row's
// activations and their gradients, which is computed slice by slice in deterministic mode.
void Mlp::weigh_gradients(const Pass& pass, ConstTensor active, ConstTensor active_gradient,
                          std::span<double> gradients) const {
  const std::vector<Share> slices = out_.input_slices(pass);
  std::vector<std::vector<double>> terms(slices.size(), std::vector<double>(gradients.size()));
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto [first, count] = slices[i];
    dot_rows(active.col_range(first, count), active_gradient.col_range(first, count), terms[i]);
  }
  std::ranges::copy(sum_of_lists(std::move(terms)), gradients.begin());
}

// With activation a, weight w and output o = W a of a row, let g be the gradient of the row w o.
// The gradient of w is dot(g, o), which equals dot(W^T g, a).
Tensor Mlp::backward(Pass& pass, ConstTensor output_gradient, const RowWeights& rows,
                     Saved& saved) const {
  const Tensor active_gradient = out_.backward_input(pass, output_gradient, saved.out);
  const ConstTensor active = saved.out.input;
  const Tensor weighted = pass.arena.take(active.dtype, active.rows, active.cols);
  weigh_gradients(pass, active, active_gradient, rows.gradients);
  scale_rows(active, rows.weights, weighted);
  scale_rows(active_gradient, rows.weights, active_gradient);
  saved.out.input = weighted;
  pass.finish([this, &pass, &saved] { out_.backward_weight(pass, saved.out); });
  return backward_hidden(pass, active_gradient, saved, nullptr);
}

Tensor Mlp::backward_hidden(Pass& pass, Tensor active_gradient, Saved& saved,
                            RowsInTurn* turns) const {
  const Tensor before = saved.before;
  if (!up_) {
    gelu_backward(before, active_gradient, active_gradient);
    return in_.backward(pass, active_gradient, saved.in, turns);
  }
  const Tensor gradient = as_halves(pass.arena.take(before.dtype, before.rows, before.cols));
  swiglu_backward(half(as_halves(before), 0), half(as_halves(before), 1), active_gradient,
                  half(gradient, 0), half(gradient, 1));
  const std::array<Linear::Backward, 2> layers = {
      {{&in_, half(gradient, 0), &saved.in}, {&*up_, half(gradient, 1), &saved.up}}};
  return Linear::backward(pass, layers, turns);
}

}  // namespace tutti::training
