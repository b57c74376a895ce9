#include "training/engine/gradient_probe.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "training/kernels/elementwise.h"
#include "training/optimizers/blocks.h"

namespace tutti::training {
namespace {

// Returns the sum of squares. Uses several sums, so that additions do not wait for each other.
double square_of(std::span<const float> values) {
  std::array<float, 8> sums{};
  size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += values[i + j] * values[i + j];
  }
  double square = 0;
  for (; i < values.size(); ++i) square += values[i] * values[i];
  for (const float sum : sums) square += sum;
  return square;
}

// Returns the squared norm of the sum of the rows, which have equal lengths.
double square_of_sum(std::span<const ConstTensor> rows) {
  std::array<float, kUpdateBlock> sum, buffer;
  double square = 0;
  const int64_t count = rows.front().size();
  for (int64_t first = 0; first < count; first += kUpdateBlock) {
    const int64_t length = std::min<int64_t>(kUpdateBlock, count - first);
    std::span<const float> values = as_floats(rows.front().col_range(first, length), sum);
    for (const ConstTensor& row : rows.subspan(1)) {
      const std::span<const float> more = as_floats(row.col_range(first, length), buffer);
      for (size_t i = 0; i < more.size(); ++i) sum[i] = values[i] + more[i];
      values = std::span(sum).first(more.size());
    }
    square += square_of(values);
  }
  return square;
}

// Returns the rows whose sum is a parameter's gradient. Later units that use the parameter, and
// other ranks' micro-batches, may have their own rows.
std::vector<ConstTensor> rows_of(Model& model, int parameter) {
  const auto as_row = [](const Tensor& tensor) { return tensor.reshaped(1, tensor.size()); };
  const Tensor gradient = model.parameters().at(parameter).gradient;
  if (gradient.empty()) return {};
  std::vector<ConstTensor> rows = {as_row(gradient)};
  for (const Tensor& other : model.parameters().separate_gradients(parameter)) {
    rows.push_back(as_row(other));
  }
  for (const Tensor& other : model.parameters().at(parameter).other_gradients) {
    rows.push_back(as_row(other));
  }
  return rows;
}

}  // namespace

GradientProbe::GradientProbe(UnitHooks& inner, Model& model, const Options& options)
    : inner_(inner),
      model_(model),
      options_(options),
      uses_(static_cast<size_t>(model.parameters().size())) {}

void GradientProbe::begin_step(std::span<const int64_t> passes) {
  std::ranges::fill(uses_, Use{});
  for (size_t unit = 0; unit < passes.size(); ++unit) {
    if (passes[unit] == 0) continue;
    for (const int parameter : model_.parameters().used_by(static_cast<int>(unit))) {
      Use& use = uses_[static_cast<size_t>(parameter)];
      ++use.units;
      use.all += passes[unit];
    }
  }
  broken_.reset();
  square_ = 0;
}

void GradientProbe::after_weights(int unit) {
  for (const int parameter : model_.parameters().used_by(unit)) {
    Use& use = uses_[static_cast<size_t>(parameter)];
    ++use.reached;
    measure(parameter, use);
  }
  inner_.after_weights(unit);
}

// Checks a parameter's gradient, and measures its norm. Values whose square is finite are finite,
// so computing the norm checks them as well.
void GradientProbe::measure(int parameter, const Use& use) {
  const bool measures = options_.measures && use.reached == use.units;
  const bool is_whole =
      use.reached == use.all || (options_.each_micro_batch && use.reached % use.units == 0);
  if (!measures && (!is_whole || broken_)) return;
  const std::vector<ConstTensor> rows = rows_of(model_, parameter);
  if (rows.empty()) return;
  const double square = measures ? square_of_sum(rows) : 0;
  square_ += square;
  if (!is_whole || broken_ || (measures && std::isfinite(square))) return;
  const auto is_finite = [](ConstTensor row) { return all_finite(row).get(); };
  if (!std::ranges::all_of(rows, is_finite)) broken_ = parameter;
}

}  // namespace tutti::training
