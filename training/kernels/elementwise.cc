#include "training/kernels/elementwise.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "training/kernels/loops.h"

namespace tutti::training {
namespace {

using kernels::loops;

bool alike(ConstTensor a, ConstTensor b) {
  return a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype && a.contiguous() &&
         b.contiguous();
}

}  // namespace

void gelu(ConstTensor x, Tensor y) {
  require_shapes(alike(x, y), "gelu");
  loops(x.dtype).gelu(x.data, y.data, x.size());
}

void gelu_backward(ConstTensor x, ConstTensor dy, Tensor dx) {
  require_shapes(alike(x, dy) && alike(x, dx), "gelu_backward");
  loops(x.dtype).gelu_backward(x.data, dy.data, dx.data, x.size());
}

void swiglu(ConstTensor gate, ConstTensor up, Tensor y) {
  require_shapes(alike(gate, up) && alike(gate, y), "swiglu");
  loops(gate.dtype).swiglu(gate.data, up.data, y.data, gate.size());
}

void swiglu_backward(ConstTensor gate, ConstTensor up, ConstTensor dy, Tensor dgate, Tensor dup) {
  require_shapes(alike(gate, up) && alike(gate, dy) && alike(gate, dgate) && alike(gate, dup),
                 "swiglu_backward");
  loops(gate.dtype).swiglu_backward(gate.data, up.data, dy.data, dgate.data, dup.data, gate.size());
}

void relu(ConstTensor x, Tensor y) {
  require_shapes(alike(x, y), "relu");
  loops(x.dtype).relu(x.data, y.data, x.size());
}

void relu_backward(ConstTensor y, ConstTensor dy, Tensor dx) {
  require_shapes(alike(y, dy) && alike(y, dx), "relu_backward");
  loops(y.dtype).relu_backward(y.data, dy.data, dx.data, y.size());
}

void add(ConstTensor a, ConstTensor b, Tensor y) {
  require_shapes(alike(a, b) && alike(a, y), "add");
  loops(a.dtype).add(a.data, b.data, y.data, a.size());
}

void scale(ConstTensor x, Tensor y, double factor) {
  require_shapes(alike(x, y), "scale");
  loops(x.dtype).scale(x.data, y.data, x.size(), factor);
}

bool all_finite(ConstTensor x) {
  require_shapes(x.contiguous(), "all_finite");
  return loops(x.dtype).all_finite(x.data, x.size());
}

void convert(ConstTensor x, Tensor y) {
  require_shapes(x.size() == y.size() && x.contiguous() && y.contiguous() &&
                     (x.dtype == DType::f64) == (y.dtype == DType::f64),
                 "convert");
  if (x.dtype == y.dtype) {
    if (!x.empty()) std::memmove(y.data, x.data, x.bytes());
  } else if (y.dtype == DType::f32) {
    loops(x.dtype).to_values(x.data, y.data, x.size());
  } else if (x.dtype == DType::f32) {
    loops(y.dtype).from_values(x.data, y.data, x.size());
  } else {
    std::vector<float> wide(static_cast<size_t>(x.size()));
    loops(x.dtype).to_values(x.data, wide.data(), x.size());
    loops(y.dtype).from_values(wide.data(), y.data, x.size());
  }
}

void dropout(ConstTensor x, Tensor y, double p, const DropoutAt& at) {
  require_shapes(alike(x, y), "dropout");
  loops(x.dtype).dropout(x.data, y.data, x.size(), static_cast<uint32_t>(std::ldexp(p, 32)),
                         1 / (1 - p), {at.seed, at.stream, at.index});
}

void add_column_sums(ConstTensor dy, Tensor bias_gradient, Arena& arena) {
  require_shapes(dy.cols == bias_gradient.size(), "add_column_sums");
  const ArenaScope scope(arena);
  const Tensor sums = zero_values(dy.dtype, dy.cols, arena);
  loops(dy.dtype).add_column_sums(dy.data, sums.data, dy.rows, dy.cols, dy.stride);
  add_values(sums, bias_gradient);
}

Tensor zero_values(DType type, int64_t count, Arena& arena) {
  const Tensor values = arena.take(value_type(type), 1, count);
  if (count > 0) std::memset(values.data, 0, values.bytes());
  return values;
}

void add_values(ConstTensor values, Tensor gradient) {
  require_shapes(values.size() == gradient.size() && values.dtype == value_type(gradient.dtype),
                 "add_values");
  loops(gradient.dtype).add_values(values.data, gradient.data, gradient.size());
}

}  // namespace tutti::training
