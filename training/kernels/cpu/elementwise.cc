#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"
#include "training/kernels/cpu/row_sums.h"

namespace tutti::training::cpu {
namespace {

using kernels::loops;

constexpr int64_t kGrain = 1 << 14;  // elements per part

// Calls body(count, address of each tensor's part...) for parts of contiguous tensors of one shape.
template <typename Body, typename First, typename... Rest>
void by_parts(Body&& body, First first, Rest... rest) {
  parallel_ranges(first.size(), kGrain, [&](int64_t start, int64_t count) {
    const auto at = [start](auto tensor) {
      return tensor.data + static_cast<size_t>(start) * size_of(tensor.dtype);
    };
    body(count, at(first), at(rest)...);
  });
}

bool alike(ConstTensor a, ConstTensor b) {
  return a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype && a.contiguous() &&
         b.contiguous();
}

// Converts elements. Used only for gradient checks, so it is not parallel.
template <typename From, typename To>
void cast(std::span<const From> x, std::span<To> y) {
  std::ranges::transform(x, y.begin(), [](From value) { return static_cast<To>(value); });
}

}  // namespace

void gelu(ConstTensor x, Tensor y) {
  require_shapes(alike(x, y), "gelu");
  const auto loop = loops(x.dtype).gelu;
  by_parts([&](int64_t n, auto* in, auto* out) { loop(in, out, n); }, x, y);
}

void gelu_backward(ConstTensor x, ConstTensor dy, Tensor dx) {
  require_shapes(alike(x, dy) && alike(x, dx), "gelu_backward");
  const auto loop = loops(x.dtype).gelu_backward;
  by_parts([&](int64_t n, auto* in, auto* g, auto* out) { loop(in, g, out, n); }, x, dy, dx);
}

void swiglu(ConstTensor gate, ConstTensor up, Tensor y) {
  require_shapes(alike(gate, up) && alike(gate, y), "swiglu");
  const auto loop = loops(gate.dtype).swiglu;
  by_parts([&](int64_t n, auto* g, auto* u, auto* out) { loop(g, u, out, n); }, gate, up, y);
}

void swiglu_backward(ConstTensor gate, ConstTensor up, ConstTensor dy, Tensor dgate, Tensor dup) {
  require_shapes(alike(gate, up) && alike(gate, dy) && alike(gate, dgate) && alike(gate, dup),
                 "swiglu_backward");
  const auto loop = loops(gate.dtype).swiglu_backward;
  by_parts(
      [&](int64_t n, auto* g, auto* u, auto* d, auto* dg, auto* du) { loop(g, u, d, dg, du, n); },
      gate, up, dy, dgate, dup);
}

void relu(ConstTensor x, Tensor y) {
  require_shapes(alike(x, y), "relu");
  const auto loop = loops(x.dtype).relu;
  by_parts([&](int64_t n, auto* in, auto* out) { loop(in, out, n); }, x, y);
}

void relu_backward(ConstTensor y, ConstTensor dy, Tensor dx) {
  require_shapes(alike(y, dy) && alike(y, dx), "relu_backward");
  const auto loop = loops(y.dtype).relu_backward;
  by_parts([&](int64_t n, auto* in, auto* g, auto* out) { loop(in, g, out, n); }, y, dy, dx);
}

void add(ConstTensor a, ConstTensor b, Tensor y) {
  require_shapes(alike(a, b) && alike(a, y), "add");
  const auto loop = loops(a.dtype).add;
  by_parts([&](int64_t n, auto* one, auto* other, auto* out) { loop(one, other, out, n); }, a, b,
           y);
}

void scale(ConstTensor x, Tensor y, double factor) {
  require_shapes(alike(x, y), "scale");
  const auto loop = loops(x.dtype).scale;
  by_parts([&](int64_t n, auto* in, auto* out) { loop(in, out, n, factor); }, x, y);
}

Later<bool> all_finite(ConstTensor x) {
  require_shapes(x.contiguous(), "all_finite");
  const auto loop = loops(x.dtype).all_finite;
  std::atomic<bool> finite = true;
  by_parts(
      [&](int64_t n, auto* in) {
        if (!loop(in, n)) finite = false;
      },
      x);
  return finite.load();
}

void zero(Tensor x) {
  require_shapes(x.contiguous(), "zero");
  by_parts(
      [&](int64_t n, auto* at) { std::memset(at, 0, static_cast<size_t>(n) * size_of(x.dtype)); },
      x);
}

void copy(ConstTensor x, Tensor y) {
  require_shapes(x.size() == y.size() && x.dtype == y.dtype && x.contiguous() && y.contiguous(),
                 "copy");
  if (x.empty()) return;
  const auto from = reinterpret_cast<uintptr_t>(x.data);
  const auto to = reinterpret_cast<uintptr_t>(y.data);
  if (from < to + y.bytes() && to < from + x.bytes()) {
    std::memmove(y.data, x.data, x.bytes());
    return;
  }
  by_parts([&](int64_t n, auto* in,
               auto* out) { std::memcpy(out, in, static_cast<size_t>(n) * size_of(x.dtype)); },
           x, y);
}

void convert(ConstTensor x, Tensor y) {
  const bool in_double = x.dtype == DType::f64 || y.dtype == DType::f64;
  const auto fits = [&](DType type) {
    return !in_double || type == DType::f64 || type == DType::f32;
  };
  require_shapes(
      x.size() == y.size() && x.contiguous() && y.contiguous() && fits(x.dtype) && fits(y.dtype),
      "convert");
  if (x.dtype == y.dtype) return cpu::copy(x, y);
  if (x.dtype == DType::f64) return cast(x.values<double>(), y.values<float>());
  if (y.dtype == DType::f64) return cast(x.values<float>(), y.values<double>());
  by_parts(
      [&](int64_t n, auto* in, auto* out) {
        std::array<float, kGrain> wide;
        void* const values = y.dtype == DType::f32 ? static_cast<void*>(out) : wide.data();
        const void* source = in;
        if (x.dtype != DType::f32) {
          loops(x.dtype).to_values(in, values, n);
          source = values;
        }
        if (y.dtype != DType::f32) loops(y.dtype).from_values(source, out, n);
      },
      x, y);
}

// Calls drop(offset in bytes, count, threshold, factor of kept elements, random) for parts of x.
template <typename Drop>
void by_dropped_parts(ConstTensor x, double p, const DropoutAt& at, const Drop& drop) {
  const auto threshold = static_cast<uint32_t>(std::ldexp(p, 32));
  parallel_ranges(x.size(), kGrain, [&](int64_t first, int64_t count) {
    drop(static_cast<size_t>(first) * size_of(x.dtype), count, threshold, 1 / (1 - p),
         kernels::RandomAt{at.seed, at.stream, at.index + static_cast<uint64_t>(first)});
  });
}

void dropout(ConstTensor x, Tensor y, double p, const DropoutAt& at) {
  require_shapes(alike(x, y), "dropout");
  const auto loop = loops(x.dtype).dropout;
  by_dropped_parts(x, p, at, [&](size_t offset, int64_t count, auto... how) {
    loop(x.data + offset, y.data + offset, count, how...);
  });
}

void dropout_add(ConstTensor x, ConstTensor residual, Tensor y, double p, const DropoutAt& at) {
  require_shapes(alike(x, y) && alike(x, residual), "dropout_add");
  const auto loop = loops(x.dtype).dropout_add;
  by_dropped_parts(x, p, at, [&](size_t offset, int64_t count, auto... how) {
    loop(x.data + offset, residual.data + offset, y.data + offset, count, how...);
  });
}

void add_column_sums(ConstTensor dy, Tensor bias_gradient, Arena& arena) {
  require_shapes(dy.cols == bias_gradient.size(), "add_column_sums");
  const ArenaScope scope(arena);
  const auto loop = loops(dy.dtype).add_column_sums;
  const Tensor sums = sum_over_rows(dy.rows, value_type(dy.dtype), dy.cols, arena,
                                    [&](int64_t first, int64_t count, void* own) {
                                      loop(dy.at(first, 0), own, count, dy.cols, dy.stride);
                                    });
  cpu::add_values(sums, bias_gradient);
}

void add_values(ConstTensor values, Tensor gradient) {
  require_shapes(values.size() == gradient.size() && values.dtype == value_type(gradient.dtype),
                 "add_values");
  const auto loop = loops(gradient.dtype).add_values;
  by_parts([&](int64_t n, auto* in, auto* out) { loop(in, out, n); }, values, gradient);
}

}  // namespace tutti::training::cpu
