#include "training/modules/head_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "training/core/slices.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/head_norm.h"
#include "training/kernels/rows.h"

namespace tutti::training {
namespace {

std::vector<int64_t> shape_of(const HeadNormOptions& options) {
  const bool of_each = options.kind == HeadNormKind::each_head;
  return {of_each ? options.head_size : options.heads * options.head_size};
}

// Returns the placement of the gain. Gradients of a per-head gain are partial sums over ranks with
// other heads; in deterministic mode backward_weight() sums them.
Placement placement_of(const HeadNormOptions& options) {
  if (!options.sum) return {};
  if (options.kind == HeadNormKind::all_heads) return {.cuts = {{Axis::tensor, 0}}};
  return options.all_slices == 1 ? Placement{.partial = {Axis::tensor}} : Placement{};
}

}  // namespace

HeadNorm::HeadNorm(ParameterTable& table, const std::string& name, const HeadNormOptions& options)
    : options_(options),
      gain_(table.add(name + ".weight", shape_of(options), {Initial::Kind::constant, 1},
                      placement_of(options))) {}

// Returns the columns of each slice on this rank.
std::vector<Share> HeadNorm::columns() const {
  std::vector<Share> columns;
  const int64_t size = options_.head_size;
  for (int i = 0; i < options_.slices; ++i) {
    const Share heads = even_share(options_.heads, options_.first_slice + i, options_.all_slices);
    columns.push_back({(heads.first - options_.own.first) * size, heads.count * size});
  }
  if (options_.all_slices == 1) columns = {{0, own_width()}};
  return columns;
}

// Returns, for each row and group, the sum of x y gain.
std::vector<double> HeadNorm::sums(Pass& pass, ConstTensor x, ConstTensor y,
                                   ConstTensor gain) const {
  std::vector<double> sums(static_cast<size_t>(x.rows * (x.cols / group())));
  if (of_each()) {
    dot_groups(x, y, gain, group(), sums);
    return sums;
  }
  std::vector<std::vector<double>> terms;
  for (const auto& [first, count] : columns()) {
    terms.emplace_back(sums.size());
    if (count == 0) continue;
    dot_groups(x.col_range(first, count), y.col_range(first, count),
               gain.empty() ? gain : gain.col_range(first, count), count, terms.back());
  }
  sums = sum_of_lists(std::move(terms));
  if (options_.sum) options_.sum(pass, Axis::tensor, sums);
  return sums;
}

void HeadNorm::forward(Pass& pass, Saved& saved, Tensor output) const {
  const int64_t width = of_each() ? options_.head_size : options_.heads * options_.head_size;
  saved.factors = sums(pass, saved.input, saved.input, {});
  for (double& factor : saved.factors) {
    factor = 1 / std::sqrt(factor / static_cast<double>(width) + options_.epsilon);
  }
  scale_groups(saved.input, gain_->value, group(), saved.factors, output);
}

// Computes dx = r g dy - x r^3 mean(x g dy), with r = 1 / sqrt(mean of x^2).
Tensor HeadNorm::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const int64_t width = of_each() ? options_.head_size : options_.heads * options_.head_size;
  std::vector<double> more = sums(pass, output_gradient, saved.input, gain_->value);
  std::ranges::transform(more, saved.factors, more.begin(), [&](double sum, double factor) {
    return -factor * factor * factor * sum / static_cast<double>(width);
  });
  const ConstTensor x = saved.input;
  const Tensor gradient = pass.arena.take(x.dtype, x.rows, x.cols);
  scale_groups_backward(output_gradient, x, gain_->value, group(), saved.factors, more, gradient);
  saved.output_gradient = output_gradient;
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return gradient;
}

void HeadNorm::backward_weight(Pass& pass, const Saved& saved) const {
  const ConstTensor x = saved.input;
  const auto count = static_cast<size_t>(gain_->gradient.size());
  std::vector<std::vector<double>> terms;
  if (!of_each()) {
    add_gain_gradients(saved.output_gradient, x, group(), saved.factors, terms.emplace_back(count));
  } else {
    const int64_t heads = x.cols / options_.head_size;
    for (const auto& [first, columns] : this->columns()) {
      std::vector<double>& sum = terms.emplace_back(count);
      for (int64_t head = first / options_.head_size; head < (first + columns) / options_.head_size;
           ++head) {
        std::vector<double> factors;
        for (int64_t row = 0; row < x.rows; ++row) {
          factors.push_back(saved.factors[static_cast<size_t>(row * heads + head)]);
        }
        const int64_t at = head * options_.head_size;
        add_gain_gradients(saved.output_gradient.col_range(at, options_.head_size),
                           x.col_range(at, options_.head_size), options_.head_size, factors, sum);
      }
    }
  }
  std::vector<double> sums = sum_of_lists(std::move(terms));
  // In deterministic mode, sums the gradient over ranks; otherwise it remains a partial sum.
  if (of_each() && options_.sum && options_.all_slices > 1) options_.sum(pass, Axis::tensor, sums);
  const ArenaScope scope(pass.arena);
  const Tensor values = pass.arena.take(value_type(pass.dtype), 1, gain_->gradient.size());
  set_row(values, 0, sums);
  add_values(values, gain_->gradient);
}

}  // namespace tutti::training
