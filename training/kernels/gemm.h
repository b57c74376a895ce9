// Matrix products, by oneDNN (f64, for gradient checks, by BLAS).
//
// Any thread may call; its pool computes (thread_pool.h). The bits of a result depend on shapes,
// values, the processor's instruction set and what BitsOf says, not on the number of threads. A
// failure of the library is an Error(internal).
#pragma once

#include "training/core/tensor.h"

namespace tutti::training {

enum class Transpose : bool { no, yes };
enum class GemmMode { overwrite, accumulate };
// BitsOf::shape: a product has the same bits whatever its matrices' strides are. BitsOf::strides:
// it need not. Where no matrix has gaps between its rows, oneDNN then multiplies 1 to 5% faster
// (small products more), and adds in another order.
enum class BitsOf { strides, shape };

// c = op(a) op(b) + bias, or c += op(a) op(b), with sums in float (f64: double). a and b have one
// type; c has it too, or f32 where that is a 16-bit type. `bias` (1 x c.cols, of a's type) goes
// with `overwrite` only. Strides are free. f16, and bf16 on a processor without AVX-512, are
// converted to f32 and back.
void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode = GemmMode::overwrite, ConstTensor bias = {},
          BitsOf bits = BitsOf::strides);

}  // namespace tutti::training
