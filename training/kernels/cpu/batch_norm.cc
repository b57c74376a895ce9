#include <algorithm>

#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/cpu/row_sums.h"

namespace tutti::training::cpu {
namespace {

void check(ConstTensor x, ConstTensor statistics, ConstTensor other) {
  require_shapes(x.contiguous() && other.contiguous() && x.rows == other.rows &&
                     x.cols == other.cols && x.dtype == other.dtype && statistics.rows == 2 &&
                     statistics.cols == x.cols && statistics.dtype == value_type(x.dtype),
                 "batch_norm");
}

// Returns a row of any floating-point type, converted to double.
std::span<double> doubles_of(ConstTensor row, Arena& arena) {
  const Tensor copy = arena.take(DType::f64, 1, row.cols);
  // 16-bit types are converted to float first.
  const Tensor values = arena.take(value_type(row.dtype), 1, row.cols);
  kernels::loops(row.dtype).to_values(row.data, values.data, row.cols);
  const auto result = copy.values<double>();
  if (values.dtype == DType::f64) {
    std::ranges::copy(values.values<double>(), result.begin());
  } else {
    std::ranges::copy(values.values<float>(), result.begin());
  }
  return result;
}

// Returns numbers converted to the type of the `values` that loops take for elements of `type`.
Tensor values_of(std::span<const double> source, DType type, Arena& arena) {
  const Tensor values = arena.take(value_type(type), 1, std::ssize(source));
  if (values.dtype == DType::f64) {
    std::ranges::copy(source, values.values<double>().begin());
  } else {
    std::ranges::transform(source, values.values<float>().begin(),
                           [](double value) { return static_cast<float>(value); });
  }
  return values;
}

// Returns the address of a row, or null for an empty tensor.
const void* row_of(ConstTensor tensor, int64_t row) {
  return tensor.empty() ? nullptr : tensor.at(row, 0);
}

// Returns gain / deviation for each column.
std::span<double> factors_of(ConstTensor statistics, ConstTensor gain, Arena& arena) {
  const auto factors = doubles_of(gain, arena);
  const auto inverse = doubles_of(statistics.row_range(1, 1), arena);
  for (size_t c = 0; c < factors.size(); ++c) factors[c] *= inverse[c];
  return factors;
}

}  // namespace

void column_moments(ConstTensor x, std::span<double> moments, Arena& arena) {
  require_shapes(x.contiguous() && std::ssize(moments) == 2 * x.cols, "column_moments");
  const ArenaScope scope(arena);
  const auto loop = kernels::loops(x.dtype).column_moments;
  const Tensor sums = sum_over_rows(x.rows, DType::f64, 2 * x.cols, arena,
                                    [&](int64_t first, int64_t count, void* own) {
                                      auto* const both = static_cast<double*>(own);
                                      loop(x.at(first, 0), both, both + x.cols, count, x.cols);
                                    });
  const auto found = sums.values<double>();
  for (size_t i = 0; i < moments.size(); ++i) moments[i] += found[i];
}

void batch_norm(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor bias,
                bool relu, Tensor y, Arena& arena) {
  check(x, statistics, y);
  const ArenaScope scope(arena);
  const Tensor factors = values_of(factors_of(statistics, gain, arena), x.dtype, arena);
  const Tensor biases = values_of(doubles_of(bias, arena), x.dtype, arena);
  const auto loop = kernels::loops(x.dtype).batch_norm;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    loop(x.at(first, 0), statistics.data, factors.data, biases.data, relu, y.at(first, 0), count,
         x.cols);
  });
}

void batch_norm_sums(ConstTensor x, ConstTensor statistics, ConstTensor y, ConstTensor dy,
                     std::span<double> sums, Arena& arena) {
  check(x, statistics, dy);
  require_shapes(std::ssize(sums) == 2 * x.cols, "batch_norm_sums");
  const ArenaScope scope(arena);
  const auto loop = kernels::loops(x.dtype).batch_norm_sums;
  const Tensor found = sum_over_rows(x.rows, DType::f64, 2 * x.cols, arena,
                                     [&](int64_t first, int64_t count, void* own) {
                                       auto* const both = static_cast<double*>(own);
                                       loop(x.at(first, 0), statistics.data, row_of(y, first),
                                            dy.at(first, 0), both, both + x.cols, count, x.cols);
                                     });
  std::ranges::copy(found.values<double>(), sums.begin());
  const auto products = sums.subspan(static_cast<size_t>(x.cols));
  const auto inverse = doubles_of(statistics.row_range(1, 1), arena);
  for (size_t c = 0; c < products.size(); ++c) products[c] *= inverse[c];
}

// Computes dx = (g - mean(g) - n mean(g n)) * gain / deviation, with n = (x - mean) / deviation.
void batch_norm_backward(ConstTensor x, ConstTensor statistics, ConstTensor gain, ConstTensor y,
                         ConstTensor dy, std::span<const double> sums, double count, Tensor dx,
                         Arena& arena) {
  check(x, statistics, dy);
  check(x, statistics, dx);
  const ArenaScope scope(arena);
  const auto cols = static_cast<size_t>(x.cols);
  const auto factor = factors_of(statistics, gain, arena);
  const auto inverse = doubles_of(statistics.row_range(1, 1), arena);
  const auto slope = arena.take(DType::f64, 1, x.cols).values<double>();
  const auto offset = arena.take(DType::f64, 1, x.cols).values<double>();
  for (size_t c = 0; c < cols; ++c) {
    slope[c] = sums.empty() ? 0 : factor[c] * inverse[c] * sums[cols + c] / count;
    offset[c] = sums.empty() ? 0 : factor[c] * sums[c] / count;
  }
  const auto values = [&](std::span<const double> source) {
    return values_of(source, x.dtype, arena).data;
  };
  const void* const factors = values(factor);
  const void* const slopes = values(slope);
  const void* const offsets = values(offset);
  const auto loop = kernels::loops(x.dtype).batch_norm_backward;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    loop(x.at(first, 0), statistics.data, row_of(y, first), dy.at(first, 0), factors, slopes,
         offsets, dx.at(first, 0), count, x.cols);
  });
}

}  // namespace tutti::training::cpu
