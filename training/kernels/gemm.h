// Matrix products by oneDNN (in f64, for gradient checks, by BLAS).
//
// Thread-safe; the calling thread's pool computes tiles (thread_pool.h). The bits of a result
// depend on shapes, values, instruction set and BitsOf (with BitsOf::strides, also on strides), not
// on the number of threads. A failure of the library throws Error(internal).
#pragma once

#include "training/core/tensor.h"

namespace tutti::training {

enum class Transpose : bool { no, yes };
enum class GemmMode { overwrite, accumulate };
// Selects whether the bits of a product may depend on the strides of its matrices: with `shape`
// they do not, with `strides` they may. With `strides`, if no matrix has gaps between rows, oneDNN
// uses another order of summation and is 1 to 5% faster (more for small products).
enum class BitsOf { strides, shape };

// Computes c = op(a) op(b) + bias, or c += op(a) op(b), with sums in float (f64: double). a and b
// have the same type. c has that type too, or may be f32 if it is a 16-bit type. `bias` (1 x
// c.cols, of a's type) is allowed with `overwrite` only. Strides are arbitrary. f16, and bf16 on a
// processor without AVX-512, are converted to f32 and back.
void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode = GemmMode::overwrite, ConstTensor bias = {},
          BitsOf bits = BitsOf::strides);

}  // namespace tutti::training
