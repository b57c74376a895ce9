// Elementwise kernels and sums over rows. Unless noted otherwise, the tensors of a call have the
// same type and shape and are contiguous, and outputs may alias inputs.
//
// For all kernels, here and in the other headers: the tensors of a call and the arena must be in
// one memory space, whose backend computes; otherwise they throw Error(invalid_argument). Spans are
// host memory. When a call returns, its output spans are written and the caller may change its
// input spans.
#pragma once

#include <cstdint>

#include "training/core/arena.h"
#include "training/core/later.h"
#include "training/core/tensor.h"

namespace tutti::training {

// y = GELU(x) in its tanh form (Hendrycks, Gimpel 2016).
void gelu(ConstTensor x, Tensor y);
void gelu_backward(ConstTensor x, ConstTensor dy, Tensor dx);

// y = silu(gate) * up (Shazeer 2020).
void swiglu(ConstTensor gate, ConstTensor up, Tensor y);
void swiglu_backward(ConstTensor gate, ConstTensor up, ConstTensor dy, Tensor dgate, Tensor dup);

void relu(ConstTensor x, Tensor y);
void relu_backward(ConstTensor y, ConstTensor dy, Tensor dx);

void add(ConstTensor a, ConstTensor b, Tensor y);
void scale(ConstTensor x, Tensor y, double factor);
Later<bool> all_finite(ConstTensor x);
void zero(Tensor x);
// Copies x to y, which has the same type and may overlap x. copy() and copy_rows() also copy
// between the host's memory and the memory of another backend, and then block until done.
void copy(ConstTensor x, Tensor y);
// Copies x to y, whose rows may have gaps between them.
inline void copy_rows(ConstTensor x, Tensor y) {
  for (int64_t row = 0; row < x.rows; ++row) copy(x.row_range(row, 1), y.row_range(row, 1));
}
// Converts between any two of f32, bf16 and f16, and between f32 and f64.
void convert(ConstTensor x, Tensor y);

// The random numbers of a dropout. `index` is the counter of the first element's random number;
// later elements have consecutive counters.
struct DropoutAt {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t index = 0;
};
// y = x / (1 - p) for kept elements, otherwise 0. Backward calls it on the gradient with the same
// `at`.
void dropout(ConstTensor x, Tensor y, double p, const DropoutAt& at);
// y = residual + dropout(x), in one pass over memory. y may be x or residual.
void dropout_add(ConstTensor x, ConstTensor residual, Tensor y, double p, const DropoutAt& at);

// Adds the column sums of dy to bias_gradient (1 x cols). Sums are in float (f64: double), in the
// order of row_sums.h. Temporaries come from the arena.
void add_column_sums(ConstTensor dy, Tensor bias_gradient, Arena& arena);

// Adds values of value_type to a gradient (1 x count).
void add_values(ConstTensor values, Tensor gradient);

// Returns the type of sums and statistics: f64 for f64, otherwise f32.
inline DType value_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace tutti::training
