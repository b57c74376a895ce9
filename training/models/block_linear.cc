#include "training/models/block_linear.h"

#include <bit>

#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

// Sets `sum` to the sum of the terms [first, first + count), in the order of core/slices.h. term(i,
// tensor) writes term i.
template <typename Term>
void sum_by_tree(Arena& arena, int64_t first, int64_t count, Tensor sum, const Term& term) {
  if (count == 1) return term(first, sum);
  const auto half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)) / 2);
  sum_by_tree(arena, first, half, sum, term);
  const ArenaScope scope(arena);
  const Tensor other = arena.take(sum.dtype, sum.rows, sum.cols);
  sum_by_tree(arena, first + half, count - half, other, term);
  add(sum, other, sum);
}

// Computes c = a b, or 0 if the sums have no terms.
void multiply_block(ConstTensor a, Transpose transpose_a, ConstTensor b, Tensor c) {
  const int64_t terms = transpose_a == Transpose::yes ? a.rows : a.cols;
  if (terms == 0) return zero(c);
  gemm(a, transpose_a, b, Transpose::no, c, GemmMode::overwrite, {}, BitsOf::shape);
}

}  // namespace

BlockLinear::BlockLinear(ParameterTable& table, const std::string& name, int64_t inputs,
                         int64_t outputs, const BlockLinearOptions& options)
    : options_(options),
      inputs_(inputs),
      outputs_(outputs),
      weight_(table.add(name + ".weight", {outputs, inputs},
                        {Initial::Kind::normal, options.deviation}, options.placement)),
      bias_(table.add(name + ".bias", {outputs}, {}, options.placement)) {}

Share BlockLinear::block(const Share& own, int64_t index, int64_t count, int slices) {
  const Share slice = even_share(count, own.first + index, slices);
  return {slice.first - even_share(count, own.first, slices).first, slice.count};
}

Tensor BlockLinear::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  saved.input = input;
  const Tensor output = pass.arena.take(input.dtype, input.rows, weight_->value.rows);
  for (int64_t i = 0; i < options_.sample_slices.count; ++i) {
    const Share rows = samples(pass, i);
    for (int64_t j = 0; j < options_.output_slices.count; ++j) {
      const Share columns = outputs(j);
      gemm(input.row_range(rows.first, rows.count), Transpose::no,
           weight_->value.row_range(columns.first, columns.count), Transpose::yes,
           output.row_range(rows.first, rows.count).col_range(columns.first, columns.count),
           GemmMode::overwrite, bias_->value.col_range(columns.first, columns.count),
           BitsOf::shape);
    }
  }
  return output;
}

Tensor BlockLinear::backward_input(Pass& pass, ConstTensor output_gradient) const {
  const Tensor gradient =
      pass.arena.take(value_type(output_gradient.dtype), output_gradient.rows, inputs_);
  for (int64_t i = 0; i < options_.sample_slices.count; ++i) {
    const Share rows = samples(pass, i);
    const ConstTensor own = output_gradient.row_range(rows.first, rows.count);
    sum_by_tree(pass.arena, 0, options_.output_slices.count,
                gradient.row_range(rows.first, rows.count), [&](int64_t j, Tensor term) {
                  const Share columns = outputs(j);
                  multiply_block(own.col_range(columns.first, columns.count), Transpose::no,
                                 weight_->value.row_range(columns.first, columns.count), term);
                });
  }
  return gradient;
}

BlockLinear::Branches BlockLinear::weight_branches(Pass& pass, const Saved& saved) const {
  const ConstTensor dy = saved.output_gradient, x = saved.input;
  const DType type = value_type(dy.dtype);
  const Branches sums{.weight = pass.arena.take(type, dy.cols, inputs_),
                      .bias = pass.arena.take(type, dy.cols, 1)};
  for (int64_t j = 0; j < options_.output_slices.count; ++j) {
    const Share columns = outputs(j);
    sum_by_tree(pass.arena, 0, options_.sample_slices.count,
                sums.weight.row_range(columns.first, columns.count), [&](int64_t i, Tensor term) {
                  const Share rows = samples(pass, i);
                  multiply_block(
                      dy.row_range(rows.first, rows.count).col_range(columns.first, columns.count),
                      Transpose::yes, x.row_range(rows.first, rows.count), term);
                });
  }
  sum_by_tree(pass.arena, 0, options_.sample_slices.count, sums.bias.reshaped(1, dy.cols),
              [&](int64_t i, Tensor term) {
                const Share rows = samples(pass, i);
                zero(term);
                add_column_sums(dy.row_range(rows.first, rows.count), term, pass.arena);
              });
  return sums;
}

void BlockLinear::add_gradients(const Branches& sums) const {
  const auto add_to = [](ConstTensor sum, Tensor gradient) {
    add_values(sum.reshaped(1, sum.size()), gradient.reshaped(1, gradient.size()));
  };
  add_to(sums.weight, weight_->gradient);
  add_to(sums.bias, bias_->gradient);
}

}  // namespace tutti::training
