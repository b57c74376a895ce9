#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/cpu/row_sums.h"

namespace tutti::training::cpu {
namespace {

using kernels::loops;

void check(ConstTensor x, ConstTensor gain, ConstTensor y, ConstTensor statistics, int64_t values) {
  require_shapes(x.contiguous() && y.contiguous() && x.rows == y.rows && x.cols == y.cols &&
                     x.dtype == y.dtype && gain.size() == x.cols &&
                     statistics.size() == values * x.rows &&
                     statistics.dtype == value_type(x.dtype),
                 "normalization");
}

void check_type(ConstTensor x, ConstTensor parameter) {
  require_shapes(x.dtype == parameter.dtype && x.cols == parameter.size(), "normalization");
}

}  // namespace

void layer_norm(ConstTensor x, ConstTensor gain, ConstTensor bias, double epsilon, Tensor y,
                Tensor statistics) {
  check(x, gain, y, statistics, 2);
  check_type(x, gain);
  check_type(x, bias);
  const auto loop = loops(x.dtype).layer_norm;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    loop(x.at(first, 0), gain.data, bias.data, y.at(first, 0), statistics.at(first, 0), count,
         x.cols, epsilon);
  });
}

void layer_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                         Tensor dx) {
  check(x, gain, dy, statistics, 2);
  check(x, gain, dx, statistics, 2);
  check_type(x, gain);
  const auto loop = loops(x.dtype).layer_norm_backward;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    loop(x.at(first, 0), gain.data, dy.at(first, 0), statistics.at(first, 0), dx.at(first, 0),
         count, x.cols);
  });
}

void layer_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics,
                          Tensor gain_gradient, Tensor bias_gradient, Arena& arena) {
  check(x, gain_gradient, dy, statistics, 2);
  check(x, bias_gradient, dy, statistics, 2);
  const ArenaScope scope(arena);
  const auto loop = loops(x.dtype).layer_norm_gradients;
  const DType type = value_type(x.dtype);
  const Tensor sums =
      sum_over_rows(x.rows, type, 2 * x.cols, arena, [&](int64_t first, int64_t count, void* own) {
        const Tensor both = tensor_at(own, type, 2, x.cols);
        loop(x.at(first, 0), dy.at(first, 0), statistics.at(first, 0), both.data, both.at(1, 0),
             count, x.cols);
      });
  cpu::add_values(sums.col_range(0, x.cols), gain_gradient);
  cpu::add_values(sums.col_range(x.cols, x.cols), bias_gradient);
}

void rms_norm(ConstTensor x, ConstTensor gain, double epsilon, Tensor y, Tensor statistics) {
  check(x, gain, y, statistics, 1);
  check_type(x, gain);
  const auto loop = loops(x.dtype).rms_norm;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    loop(x.at(first, 0), gain.data, y.at(first, 0), statistics.at(first, 0), count, x.cols,
         epsilon);
  });
}

void rms_norm_backward(ConstTensor x, ConstTensor gain, ConstTensor dy, ConstTensor statistics,
                       Tensor dx) {
  check(x, gain, dy, statistics, 1);
  check(x, gain, dx, statistics, 1);
  check_type(x, gain);
  const auto loop = loops(x.dtype).rms_norm_backward;
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    loop(x.at(first, 0), gain.data, dy.at(first, 0), statistics.at(first, 0), dx.at(first, 0),
         count, x.cols);
  });
}

void rms_norm_gradients(ConstTensor x, ConstTensor dy, ConstTensor statistics, Tensor gain_gradient,
                        Arena& arena) {
  check(x, gain_gradient, dy, statistics, 1);
  const ArenaScope scope(arena);
  const auto loop = loops(x.dtype).rms_norm_gradients;
  const Tensor sums = sum_over_rows(
      x.rows, value_type(x.dtype), x.cols, arena, [&](int64_t first, int64_t count, void* own) {
        loop(x.at(first, 0), dy.at(first, 0), statistics.at(first, 0), own, count, x.cols);
      });
  cpu::add_values(sums, gain_gradient);
}

}  // namespace tutti::training::cpu
