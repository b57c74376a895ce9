#include "training/modules/linear.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "training/core/random.h"
#include "training/core/slices.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/quantized_weights.h"
#include "training/modules/factor_rows.h"

namespace tutti::training {
namespace {

constexpr int64_t kRowsOfASum = 256;  // number of rows whose terms fit into a core's cache

// The ranks that share the layer, and this rank's index among them.
struct Sharers {
  int ranks = 1;
  int place = 0;

  int64_t own_part(int64_t whole, bool is_cut) const {
    return is_cut ? even_share(whole, place, ranks).count : whole;
  }
};

Sharers sharers_of(const ParameterTable& table, const LinearOptions& options) {
  if (options.owner.axes.has(Axis::tensor)) return {};
  return {table.mesh().size(Axis::tensor), table.mesh().place(Axis::tensor)};
}

std::vector<int64_t> parts_of(const LinearOptions& options, int64_t inputs, int64_t outputs) {
  if (options.cut == LinearCut::by_inputs) return {inputs};
  return options.parts.empty() ? std::vector{outputs} : options.parts;
}

Placement place_of_weight(const ParameterTable& table, const LinearOptions& options) {
  Placement placement{.owner = options.owner};
  if (options.chosen) placement.partial = {Axis::tensor};
  const bool by_outputs = options.cut == LinearCut::by_outputs;
  const bool is_cut = by_outputs || options.cut == LinearCut::by_inputs;
  if (options.chosen || !is_cut || sharers_of(table, options).ranks == 1) return placement;
  placement.cuts.push_back({Axis::tensor, by_outputs ? 0 : 1});
  if (by_outputs) placement.cuts.front().parts = options.parts;
  return placement;
}

// Sums the terms [first, first + count) in the order of core/slices.h. term(i, tensor) writes term
// i.
template <typename Term>
void sum_of_terms(Arena& arena, int first, int count, Tensor sum, const Term& term) {
  if (count == 1) {
    term(first, sum);
    return;
  }
  const int half = static_cast<int>(std::bit_ceil(static_cast<unsigned>(count)) / 2);
  sum_of_terms(arena, first, half, sum, term);
  const ArenaScope scope(arena);
  const Tensor other = arena.take(sum.dtype, sum.rows, sum.cols);
  sum_of_terms(arena, first + half, count - half, other, term);
  add(sum, other, sum);
}

// Sums `count` terms a few rows at a time. term(first row, rows, i, tensor) writes some rows of
// term i.
template <typename Term>
void sum_of_products(Arena& arena, int count, Tensor sum, const Term& term) {
  for (int64_t row = 0; row < sum.rows; row += kRowsOfASum) {
    const int64_t rows = std::min(kRowsOfASum, sum.rows - row);
    sum_of_terms(arena, 0, count, sum.row_range(row, rows),
                 [&](int i, Tensor product) { term(row, rows, i, product); });
  }
}

// Calls compute(rows) for all rows, part by part if `turns` has parts, and notifies `turns` of each
// part.
template <typename Compute>
void for_each_turn(Tensor result, RowsInTurn* turns, const Compute& compute) {
  if (turns == nullptr || turns->parts().empty()) return compute(Share{0, result.rows});
  for (size_t part = 0; part < turns->parts().size(); ++part) {
    compute(turns->parts()[part]);
    turns->done(result, part);
  }
}

}  // namespace

BitsOf bits_of(const Pass& pass) { return pass.slices > 1 ? BitsOf::shape : BitsOf::strides; }

DType type_of_parts(const Pass& pass, DType type) {
  return pass.slices > 1 ? value_type(type) : type;
}

Linear::Linear(ParameterTable& table, const std::string& name, int64_t inputs, int64_t outputs,
               const LinearOptions& options)
    : Linear(table,
             table.add(name + ".weight", {outputs, inputs},
                       {Initial::Kind::normal, options.deviation}, place_of_weight(table, options)),
             inputs, outputs, options) {
  // Marks `weight_`, which was the last parameter added.
  table.mark_dense();
  if (!options.keeps_precision) table.mark_quantizable();
  stream_ = table.specs().back().stream();
  if (!options.bias) return;
  const bool by_outputs = options.chosen || options.cut == LinearCut::by_outputs;
  bias_ =
      table.add(name + ".bias", {outputs}, {},
                by_outputs ? place_of_weight(table, options) : Placement{.owner = options.owner});
  adds_bias_ = cut_ != LinearCut::by_inputs || place_ == 0;
}

Linear::Linear(ParameterTable& table, const Parameter* weight, int64_t inputs, int64_t outputs,
               const LinearOptions& options)
    : inputs_(sharers_of(table, options).own_part(inputs, options.cut == LinearCut::by_inputs)),
      outputs_(
          options.chosen
              ? options.chosen->count
              : sharers_of(table, options).own_part(outputs, options.cut == LinearCut::by_outputs)),
      first_output_(options.chosen ? options.chosen->first : 0),
      cut_(options.cut),
      parts_(parts_of(options, inputs, outputs)),
      ranks_(sharers_of(table, options).ranks),
      place_(sharers_of(table, options).place),
      weight_(weight),
      keeps_precision_(options.keeps_precision) {}

std::vector<Share> Linear::slice_of(const Pass& pass, int slice) const {
  const bool has_all = cut_ == LinearCut::replicated;
  std::vector<Share> found;
  int64_t start = 0;
  for (const int64_t part : parts_) {
    const Share here = has_all ? Share{0, part} : even_share(part, place_, ranks_);
    const Share share = even_share(part, slice, pass.slices);
    found.push_back({start + share.first - here.first, share.count});
    start += here.count;
  }
  return found;
}

std::vector<Linear::GradientPart> Linear::parts_of_slice(const Pass& pass, int slice) const {
  const std::vector<Share> outputs = slice_of(pass, slice);
  std::vector<GradientPart> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    parts.push_back({.outputs = outputs[i], .number = number_of(slice, i)});
  }
  return parts;
}

std::vector<Share> Linear::input_slices(const Pass& pass) const {
  if (!cuts_inputs(pass)) return {{0, inputs_}};
  std::vector<Share> slices;
  for_each_slice(pass, [&](const Share& at, int64_t) { slices.push_back(at); });
  return slices;
}

template <typename Body>
void Linear::for_each_slice(const Pass& pass, const Body& body) const {
  const bool has_all = cut_ == LinearCut::replicated;
  const int first = has_all ? 0 : first_slice(pass);
  const int end = has_all ? pass.slices : first + own_slices(pass);
  for (int slice = first; slice < end; ++slice) {
    const std::vector<Share> parts = slice_of(pass, slice);
    for (size_t i = 0; i < parts.size(); ++i) body(parts[i], number_of(slice, i));
  }
}

void Linear::multiply(const Pass& pass, const Product& product, ConstTensor a,
                      Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
                      GemmMode mode, ConstTensor bias) const {
  if (pass.gemm_format == GemmFormat::none || keeps_precision_) {
    return gemm(a, transpose_a, b, transpose_b, c, mode, bias, bits_of(pass));
  }
  const uint64_t micro_batch = random_bits(pass.seed, stream_, pass.batch->first_sample);
  const auto part = static_cast<uint64_t>(product.part);
  quantized_gemm({.format = pass.gemm_format,
                  .a = product.a,
                  .b = product.b,
                  .hadamard = pass.gemm_format == GemmFormat::nvfp4 && product.is_weight_gradient(),
                  .seed = random_bits(micro_batch, product.is_weight_gradient() ? 1 : 0, part),
                  .first_row = product.first_row},
                 a, transpose_a, b, transpose_b, c, mode, bias, bits_of(pass), pass.arena);
}

Tensor Linear::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const DType type = cut_ == LinearCut::by_inputs ? type_of_parts(pass, input.dtype) : input.dtype;
  const Tensor output = pass.arena.take(type, input.rows, outputs_);
  forward(pass, input, saved, output);
  return output;
}

void Linear::forward(Pass& pass, ConstTensor input, Saved& saved, Tensor output,
                     RowsInTurn* turns) const {
  saved.input = input;
  const ConstTensor bias =
      bias_ == nullptr || !adds_bias_ ? ConstTensor{} : ConstTensor(columns_of(bias_->value));
  if (weight_->quantized != nullptr) {
    return for_each_turn(output, turns, [&](const Share& rows) {
      multiply_by_weights(input.row_range(rows.first, rows.count), *weight_->quantized, bias,
                          output.row_range(rows.first, rows.count));
    });
  }
  const Tensor weight = rows_of(weight_->value);
  if (cuts_outputs(pass)) {
    for_each_slice(pass, [&](const Share& at, int64_t) {
      multiply(pass, {}, input, Transpose::no, weight.row_range(at.first, at.count), Transpose::yes,
               output.col_range(at.first, at.count), GemmMode::overwrite,
               bias.empty() ? bias : bias.col_range(at.first, at.count));
    });
  } else if (cuts_inputs(pass)) {
    sum_of_products(pass.arena, own_slices(pass), output,
                    [&](int64_t row, int64_t rows, int slice, Tensor product) {
                      const Share at = slice_of(pass, first_slice(pass) + slice).front();
                      multiply(pass, {}, input.row_range(row, rows).col_range(at.first, at.count),
                               Transpose::no, weight.col_range(at.first, at.count), Transpose::yes,
                               product, GemmMode::overwrite, slice == 0 ? bias : ConstTensor{});
                    });
  } else {
    for_each_turn(output, turns, [&](const Share& rows) {
      multiply(pass, {}, input.row_range(rows.first, rows.count), Transpose::no, weight,
               Transpose::yes, output.row_range(rows.first, rows.count), GemmMode::overwrite, bias);
    });
  }
}

void Linear::add_input_gradient(const Pass& pass, ConstTensor rows, const GradientPart& part,
                                Tensor gradient, GemmMode mode) const {
  const Share& outputs = part.outputs;
  multiply(pass, {.a = OperandKind::gradient, .part = part.number, .first_row = part.first_row},
           rows.col_range(outputs.first, outputs.count), Transpose::no,
           rows_of(weight_->value).row_range(outputs.first, outputs.count), Transpose::no, gradient,
           mode);
}

void Linear::add_weight_gradient(const Pass& pass, int64_t part, ConstTensor output_gradient,
                                 ConstTensor input, Tensor gradient) const {
  multiply(pass, {.a = OperandKind::gradient, .b = OperandKind::activation, .part = part},
           output_gradient, Transpose::yes, input, Transpose::no, gradient, GemmMode::accumulate);
}

Tensor Linear::backward_input(Pass& pass, std::span<const Backward> layers, RowsInTurn* turns) {
  const Linear& first = *layers.front().layer;
  const ConstTensor dy = layers.front().output_gradient;
  const bool in_slices = first.cuts_outputs(pass);
  const Tensor gradient =
      pass.arena.take(in_slices ? value_type(dy.dtype) : dy.dtype, dy.rows, first.inputs_);
  const auto add_all = [&](const auto& parts_of, int64_t row, Tensor sum) {
    GemmMode mode = GemmMode::overwrite;
    for (const Backward& at : layers) {
      for (GradientPart part : parts_of(*at.layer)) {
        part.first_row = row;
        at.layer->add_input_gradient(pass, at.output_gradient.row_range(row, sum.rows), part, sum,
                                     std::exchange(mode, GemmMode::accumulate));
      }
    }
  };
  if (in_slices) {
    sum_of_products(pass.arena, first.own_slices(pass), gradient,
                    [&](int64_t row, int64_t, int slice, Tensor sum) {
                      const int number = first.first_slice(pass) + slice;
                      add_all([&](const Linear& at) { return at.parts_of_slice(pass, number); },
                              row, sum);
                    });
  } else if (first.cuts_inputs(pass)) {
    first.for_each_slice(pass, [&](const Share& at, int64_t) {
      first.multiply(pass, {.a = OperandKind::gradient}, dy, Transpose::no,
                     first.weight_->value.col_range(at.first, at.count), Transpose::no,
                     gradient.col_range(at.first, at.count));
    });
  } else {
    for_each_turn(gradient, turns, [&](const Share& rows) {
      add_all(
          [](const Linear& at) {
            return std::vector<GradientPart>{{{0, at.outputs_}, at.own_part(), 0}};
          },
          rows.first, gradient.row_range(rows.first, rows.count));
    });
  }
  for (const Backward& at : layers) at.saved->output_gradient = at.output_gradient;
  return gradient;
}

Tensor Linear::backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Backward only{this, output_gradient, &saved};
  return backward_input(pass, {&only, 1});
}

Tensor Linear::backward(Pass& pass, std::span<const Backward> layers, RowsInTurn* turns) {
  const Tensor gradient = backward_input(pass, layers, turns);
  for (const auto& [layer, output_gradient, saved] : layers) {
    pass.finish([layer, &pass, saved] { layer->backward_weight(pass, *saved); });
  }
  return gradient;
}

void Linear::backward_weight(Pass& pass, const Saved& saved) const {
  const Tensor gradient = rows_of(weight_->gradient_of(saved.source));
  const ConstTensor dy = saved.output_gradient, x = saved.input;
  if (weight_->factors != nullptr) {
    weight_->factors->add(x, dy);
  } else if (cuts_outputs(pass)) {
    for_each_slice(pass, [&](const Share& at, int64_t number) {
      add_weight_gradient(pass, number, dy.col_range(at.first, at.count), x,
                          gradient.row_range(at.first, at.count));
    });
  } else if (cuts_inputs(pass)) {
    for_each_slice(pass, [&](const Share& at, int64_t) {
      add_weight_gradient(pass, 0, dy, x.col_range(at.first, at.count),
                          gradient.col_range(at.first, at.count));
    });
  } else {
    add_weight_gradient(pass, own_part(), dy, x, gradient);
  }
  if (bias_ == nullptr) return;
  add_column_sums(dy, columns_of(bias_->gradient_of(saved.source)), pass.arena);
}

Tensor Linear::backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                        RowsInTurn* turns) const {
  const Backward only{this, output_gradient, &saved};
  return backward(pass, {&only, 1}, turns);
}

}  // namespace tutti::training
