#include "training/modules/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/loops.h"

namespace tutti::training {

Embedding::Embedding(ParameterTable& table, const std::string& name, int64_t rows, int64_t width,
                     double deviation)
    : rows_(rows),
      width_(width),
      weight_(table.add(name + ".weight", {rows, width}, {Initial::Kind::normal, deviation})) {}

void Embedding::forward(std::span<const int32_t> indices, Tensor output, Saved& saved) const {
  const Tensor& weight = weight_->value;
  require_shapes(output.rows == std::ssize(indices) && output.cols == width_ &&
                     weight.rows == rows_ && weight.dtype == output.dtype,
                 "embedding");
  saved.indices = indices;
  const size_t bytes = static_cast<size_t>(width_) * size_of(output.dtype);
  for (size_t row = 0; row < indices.size(); ++row) {
    if (indices[row] < 0 || indices[row] >= rows_) {
      throw Error(ErrorCode::invalid_argument,
                  cat("the data has the token ", indices[row], ", the model ", rows_, " of them"),
                  {.cause = "the model is made for another tokenizer",
                   .remedy = "give the model as many tokens (--vocabulary) as the data has"});
    }
    std::memcpy(output.at(static_cast<int64_t>(row), 0), weight.at(indices[row], 0), bytes);
  }
}

// A row's sum is rounded before it is added: if a tied output layer's gradient is there already, or
// comes from another stage of a pipeline later, the bits are the same.
void Embedding::backward_weight(Pass& pass, const Saved& saved) const {
  const ConstTensor dy = saved.output_gradient;
  std::vector<int32_t> order(saved.indices.size());
  std::iota(order.begin(), order.end(), 0);
  const auto index_of = [&](int32_t row) { return saved.indices[static_cast<size_t>(row)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return index_of(a) < index_of(b); });
  for (size_t i = 0; i < order.size();) {
    const ArenaScope scope(pass.arena);
    const Tensor sums = zero_values(dy.dtype, width_, pass.arena);
    const int32_t index = index_of(order[i]);
    for (; i < order.size() && index_of(order[i]) == index; ++i) {
      kernels::loops(dy.dtype).add_column_sums(dy.at(order[i], 0), sums.data, 1, width_, width_);
    }
    const Tensor gradient = weight_->gradient.row_range(index, 1);
    const Tensor rounded = pass.arena.take(gradient.dtype, 1, width_);
    kernels::loops(gradient.dtype).from_values(sums.data, rounded.data, width_);
    add(gradient, rounded, gradient);
  }
}

}  // namespace tutti::training
