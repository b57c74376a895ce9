#include "training/kernels/head_norm.h"

#include <vector>

#include "training/kernels/cpu/row_values.h"

namespace tutti::training {
namespace {

// The values of a gain. If there are as many as in one group, they serve all groups.
template <typename Value>
class Gain {
 public:
  explicit Gain(ConstTensor gain)
      : values_(gain.empty() ? nullptr : values_of(gain, 0, memory_)), count_(gain.size()) {}
  // Returns the gains of the group that begins at column `first`; null if all are 1.
  const Value* of(int64_t first) const {
    return values_ == nullptr ? nullptr : values_ + first % count_;
  }

 private:
  std::vector<Value> memory_;
  const Value* values_;
  int64_t count_;
};

// Calls body(row, index of the group, its first column) for all groups.
template <typename Body>
void for_each_group(ConstTensor x, int64_t size, const Body& body) {
  const int64_t groups = x.cols / size;
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      body(row, static_cast<size_t>(row * groups + group), group * size);
    }
  }
}

void check(ConstTensor x, ConstTensor y, int64_t size, std::span<const double> numbers) {
  require_shapes(x.rows == y.rows && x.cols == y.cols && x.dtype == y.dtype && x.cols % size == 0 &&
                     std::ssize(numbers) == x.rows * (x.cols / size),
                 "groups of columns");
}

}  // namespace

void dot_groups(ConstTensor x, ConstTensor y, ConstTensor gain, int64_t size,
                std::span<double> sums) {
  check(x, y, size, sums);
  with_values(x, [&]<typename Value>(Value) {
    const Gain<Value> gains(gain);
    std::vector<Value> memory_x, memory_y;
    for_each_group(x, size, [&](int64_t row, size_t group, int64_t first) {
      const Value* const a = values_of(x.col_range(first, size), row, memory_x);
      const Value* const b = values_of(y.col_range(first, size), row, memory_y);
      const Value* const g = gains.of(first);
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        sum += double{a[i]} * double{b[i]} * (g == nullptr ? 1 : double{g[i]});
      }
      sums[group] = sum;
    });
  });
}

void scale_groups(ConstTensor x, ConstTensor gain, int64_t size, std::span<const double> factors,
                  Tensor y) {
  check(x, y, size, factors);
  with_values(x, [&]<typename Value>(Value) {
    const Gain<Value> gains(gain);
    std::vector<Value> memory, made(static_cast<size_t>(size));
    for_each_group(x, size, [&](int64_t row, size_t group, int64_t first) {
      const Value* const a = values_of(x.col_range(first, size), row, memory);
      const Value* const g = gains.of(first);
      const auto factor = static_cast<Value>(factors[group]);
      for (int64_t i = 0; i < size; ++i) made[static_cast<size_t>(i)] = a[i] * factor * g[i];
      set_values(made.data(), y.col_range(first, size), row);
    });
  });
}

void scale_groups_backward(ConstTensor dy, ConstTensor x, ConstTensor gain, int64_t size,
                           std::span<const double> factors, std::span<const double> more,
                           Tensor dx) {
  check(x, dy, size, factors);
  check(x, dx, size, more);
  with_values(x, [&]<typename Value>(Value) {
    const Gain<Value> gains(gain);
    std::vector<Value> memory_x, memory_dy, made(static_cast<size_t>(size));
    for_each_group(x, size, [&](int64_t row, size_t group, int64_t first) {
      const Value* const a = values_of(x.col_range(first, size), row, memory_x);
      const Value* const d = values_of(dy.col_range(first, size), row, memory_dy);
      const Value* const g = gains.of(first);
      const auto factor = static_cast<Value>(factors[group]);
      const auto of_x = static_cast<Value>(more[group]);
      for (int64_t i = 0; i < size; ++i) {
        made[static_cast<size_t>(i)] = d[i] * g[i] * factor + a[i] * of_x;
      }
      set_values(made.data(), dx.col_range(first, size), row);
    });
  });
}

void add_gain_gradients(ConstTensor dy, ConstTensor x, int64_t size,
                        std::span<const double> factors, std::span<double> sums) {
  check(x, dy, size, factors);
  with_values(x, [&]<typename Value>(Value) {
    std::vector<Value> memory_x, memory_dy;
    for_each_group(x, size, [&](int64_t row, size_t group, int64_t first) {
      const Value* const a = values_of(x.col_range(first, size), row, memory_x);
      const Value* const d = values_of(dy.col_range(first, size), row, memory_dy);
      double* const its = sums.data() + first % std::ssize(sums);
      for (int64_t i = 0; i < size; ++i) {
        its[i] += double{d[i]} * double{a[i]} * factors[group];
      }
    });
  });
}

}  // namespace tutti::training
