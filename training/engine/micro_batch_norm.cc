#include "training/engine/micro_batch_norm.h"

#include <algorithm>
#include <array>
#include <span>

#include "training/optimizers/blocks.h"

namespace tutti::training {
namespace {

// In several sums side by side, as one alone would wait for itself.
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

// Of the sum of rows of one length.
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

ConstTensor as_row(const Tensor& tensor) { return tensor.reshaped(1, tensor.size()); }

}  // namespace

MicroBatchNorm::MicroBatchNorm(UnitHooks& inner, Model& model)
    : inner_(inner),
      model_(model),
      uses_(static_cast<size_t>(model.parameters().size())),
      reached_(uses_.size()) {
  for (size_t unit = 0; unit < model.units().size(); ++unit) {
    for (const int parameter : model.parameters().used_by(static_cast<int>(unit))) {
      ++uses_[static_cast<size_t>(parameter)];
    }
  }
}

void MicroBatchNorm::begin_step() {
  std::ranges::fill(reached_, 0);
  square_ = 0;
}

void MicroBatchNorm::after_weights(int unit) {
  for (const int parameter : model_.parameters().used_by(unit)) {
    const auto at = static_cast<size_t>(parameter);
    if (++reached_[at] == uses_[at]) square_ += square_of(parameter);
  }
  inner_.after_weights(unit);
}

// A later unit's use of it may have a gradient apart.
double MicroBatchNorm::square_of(int parameter) const {
  const Tensor gradient = model_.parameters().at(parameter).gradient;
  if (gradient.empty()) return 0;
  std::vector<ConstTensor> rows = {as_row(gradient)};
  for (const SharedUse& use : model_.parameters().shared_uses()) {
    const Tensor other = use.view.gradient;
    if (use.parameter == parameter && other.data != gradient.data) rows.push_back(as_row(other));
  }
  return square_of_sum(rows);
}

}  // namespace tutti::training
