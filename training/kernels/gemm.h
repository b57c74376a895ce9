// Matrix products by oneDNN (in f64, for gradient checks, by BLAS).
//
// Thread-safe; tiles are computed by the calling thread's pool (thread_pool.h). The bits of a
// result depend on shapes, values, instruction set and BitsOf, not on the number of threads. A
// failure of the library throws Error(internal).
#pragma once

#include "training/core/tensor.h"

namespace tutti::training {

enum class Transpose : bool { no, yes };
enum class GemmMode { overwrite, accumulate };
// BitsOf::shape: the bits of a product do not depend on the strides of its matrices.
// BitsOf::strides: they may. If no matrix has gaps between rows, oneDNN then uses another order of
// summation and is 1 to 5% faster (more for small products).
enum class BitsOf { strides, shape };

// c = op(a) op(b) + bias, or c += op(a) op(b), with sums in float (f64: double). a and b have one
// type; c has it too, or f32 if that is a 16-bit type. `bias` (1 x c.cols, of a's type) is allowed
// with `overwrite` only. Any strides. f16, and bf16 on a processor without AVX-512, are converted
// to f32 and back.
void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode = GemmMode::overwrite, ConstTensor bias = {},
          BitsOf bits = BitsOf::strides);

}  // namespace tutti::training
