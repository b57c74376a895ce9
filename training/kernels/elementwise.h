// Elementwise kernels and sums over rows. Tensors of one call have one type, one shape, and are
// contiguous; out and in may be the same memory.
//
// Of every kernel, here and beside: all tensors of a call, and the arena, are in one memory space,
// whose backend computes; Error(invalid_argument) where they are not. Spans are the host's memory:
// what is written to them is there when the call returns, and what is read may change again.
#pragma once

#include <cstdint>

#include "training/core/arena.h"
#include "training/core/later.h"
#include "training/core/tensor.h"

namespace tutti::training {

// The tanh form of GELU (Hendrycks, Gimpel 2016).
void gelu(ConstTensor x, Tensor y);
void gelu_backward(ConstTensor x, ConstTensor dy, Tensor dx);

// silu(gate) * up (Shazeer 2020).
void swiglu(ConstTensor gate, ConstTensor up, Tensor y);
void swiglu_backward(ConstTensor gate, ConstTensor up, ConstTensor dy, Tensor dgate, Tensor dup);

void relu(ConstTensor x, Tensor y);
void relu_backward(ConstTensor y, ConstTensor dy, Tensor dx);

void add(ConstTensor a, ConstTensor b, Tensor y);
void scale(ConstTensor x, Tensor y, double factor);
Later<bool> all_finite(ConstTensor x);
void zero(Tensor x);
// Of one type; the memory may overlap. These two also go from the host's memory to another
// backend's and back, and are done then when they return.
void copy(ConstTensor x, Tensor y);
// The same of rows that lie apart.
inline void copy_rows(ConstTensor x, Tensor y) {
  for (int64_t row = 0; row < x.rows; ++row) copy(x.row_range(row, 1), y.row_range(row, 1));
}
// Between any two of f32, bf16 and f16, and between f32 and f64.
void convert(ConstTensor x, Tensor y);

// Which random number the first element gets; the others count on from it.
struct DropoutAt {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t index = 0;
};
// y = x / (1 - p) where an element is kept, else 0. The same call on a gradient is the backward.
void dropout(ConstTensor x, Tensor y, double p, const DropoutAt& at);

// bias_gradient (1 x cols) += the sums of dy's columns, in float (f64: double), as row_sums.h has
// them. Temporaries come from the arena.
void add_column_sums(ConstTensor dy, Tensor bias_gradient, Arena& arena);

// gradient (1 x count) += values of value_type.
void add_values(ConstTensor values, Tensor gradient);

// The type of sums and statistics: f32, or f64 for f64.
inline DType value_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace tutti::training
