#include "training/modules/linear.h"

#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {

namespace {

Placement cut(const ParameterTable& table, int dimension, const std::vector<int64_t>& parts = {}) {
  if (table.mesh().size(Axis::tensor) == 1) return {};
  return {.cuts = {{Axis::tensor, dimension, parts}}};
}

Placement place_of_weight(const ParameterTable& table, const LinearOptions& options) {
  if (options.cut == LinearCut::none) return {};
  return options.cut == LinearCut::by_outputs ? cut(table, 0, options.parts) : cut(table, 1);
}

int64_t own_part(const ParameterTable& table, int64_t whole, bool is_cut) {
  return is_cut ? whole / table.mesh().size(Axis::tensor) : whole;
}

}  // namespace

Linear::Linear(ParameterTable& table, const std::string& name, int64_t inputs, int64_t outputs,
               const LinearOptions& options)
    : inputs_(own_part(table, inputs, options.cut == LinearCut::by_inputs)),
      outputs_(own_part(table, outputs, options.cut == LinearCut::by_outputs)),
      weight_(table.add(name + ".weight", {outputs, inputs},
                        {Initial::Kind::normal, options.deviation},
                        place_of_weight(table, options))) {
  if (!options.bias) return;
  const bool by_outputs = options.cut == LinearCut::by_outputs;
  bias_ = table.add(name + ".bias", {outputs}, {},
                    by_outputs ? cut(table, 0, options.parts) : Placement{});
  adds_bias_ = options.cut != LinearCut::by_inputs || table.mesh().place(Axis::tensor) == 0;
}

Tensor Linear::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const Tensor output = pass.arena.take(input.dtype, input.rows, outputs_);
  forward(pass, input, saved, output);
  return output;
}

void Linear::forward(Pass&, ConstTensor input, Saved& saved, Tensor output) const {
  saved.input = input;
  gemm(input, Transpose::no, weight_->value, Transpose::yes, output, GemmMode::overwrite,
       bias_ == nullptr || !adds_bias_ ? ConstTensor{} : ConstTensor(bias_->value));
}

Tensor Linear::backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  saved.output_gradient = output_gradient;
  const Tensor input_gradient =
      pass.arena.take(output_gradient.dtype, output_gradient.rows, inputs_);
  gemm(output_gradient, Transpose::no, weight_->value, Transpose::no, input_gradient);
  return input_gradient;
}

void Linear::backward_weight(Pass& pass, const Saved& saved) const {
  gemm(saved.output_gradient, Transpose::yes, saved.input, Transpose::no, weight_->gradient,
       GemmMode::accumulate);
  if (bias_ != nullptr) add_column_sums(saved.output_gradient, bias_->gradient, pass.arena);
}

Tensor Linear::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor input_gradient = backward_input(pass, output_gradient, saved);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

}  // namespace tutti::training
