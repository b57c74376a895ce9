#include "training/kernels/rows.h"

#include <algorithm>
#include <vector>

#include "training/core/thread_pool.h"
#include "training/kernels/cpu/row_values.h"

namespace tutti::training {
namespace {

// Returns the dot product. Sums 16 lanes, which the compiler vectorizes, then adds the lanes.
template <typename Value>
Value dot(const Value* a, const Value* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  Value lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  Value sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (const Value lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void dot_rows(ConstTensor a, ConstTensor b, std::span<double> products) {
  require_shapes(
      a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype && std::ssize(products) == a.rows,
      "dot_rows");
  with_values(a, [&]<typename Value>(Value) {
    parallel_rows(a.rows, a.cols, [&](int64_t first, int64_t count) {
      std::vector<Value> memory_a, memory_b;
      for (int64_t row = first; row < first + count; ++row) {
        products[static_cast<size_t>(row)] =
            dot(values_of(a, row, memory_a), values_of(b, row, memory_b), a.cols);
      }
    });
  });
}

void scale_rows(ConstTensor x, std::span<const double> weights, Tensor y) {
  require_shapes(
      x.rows == y.rows && x.cols == y.cols && x.dtype == y.dtype && std::ssize(weights) == x.rows,
      "scale_rows");
  const auto scale = kernels::loops(x.dtype).scale;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      scale(x.at(row, 0), y.at(row, 0), x.cols, weights[static_cast<size_t>(row)]);
    }
  });
}

void add_up_rows(ConstTensor x, std::span<const int32_t> places, std::span<const double> weights,
                 Tensor y) {
  const size_t each = y.rows == 0 ? 0 : places.size() / static_cast<size_t>(y.rows);
  require_shapes(x.cols == y.cols && x.dtype == y.dtype &&
                     places.size() == each * static_cast<size_t>(y.rows) &&
                     (weights.empty() || weights.size() == places.size()),
                 "add_up_rows");
  with_values(x, [&]<typename Value>(Value) {
    parallel_rows(y.rows, y.cols, [&](int64_t first, int64_t count) {
      std::vector<Value> memory, sum(static_cast<size_t>(y.cols));
      for (int64_t row = first; row < first + count; ++row) {
        std::ranges::fill(sum, Value(0));
        for (size_t at = static_cast<size_t>(row) * each;
             at < (static_cast<size_t>(row) + 1) * each; ++at) {
          if (places[at] < 0) continue;
          const Value* const values = values_of(x, places[at], memory);
          const Value weight = weights.empty() ? Value(1) : static_cast<Value>(weights[at]);
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * values[i];
        }
        set_values(sum.data(), y, row);
      }
    });
  });
}

std::vector<double> row_of(ConstTensor tensor, int64_t row) {
  std::vector<double> numbers(static_cast<size_t>(tensor.cols));
  with_values(tensor, [&]<typename Value>(Value) {
    const auto* const from = reinterpret_cast<const Value*>(tensor.at(row, 0));
    std::copy(from, from + tensor.cols, numbers.begin());
  });
  return numbers;
}

void set_row(Tensor tensor, int64_t row, std::span<const double> numbers) {
  with_values(tensor, [&]<typename Value>(Value) {
    std::ranges::transform(numbers, reinterpret_cast<Value*>(tensor.at(row, 0)),
                           [](double number) { return static_cast<Value>(number); });
  });
}

}  // namespace tutti::training
