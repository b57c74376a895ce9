// Products of operands that are rounded to a narrow format first, as the tensor cores of GPUs
// multiply them: emulated, for the values that training in these formats has, not for its speed.
//
//   format   values   block           scale of a block           scale of an operand
//   tf32     E8M10    -               -                          -
//   fp8      E4M3     128             2^e, 2^e >= max / 448      -
//   mxfp8    E4M3     32              2^e, E8M0 (base/block_format.h, mx8)   -
//   nvfp4    E2M1     16              E4M3                       f32
//
// Blocks follow the dimension over which the product sums, from its first term on; the last one may
// be shorter. Weights have one scale for a square of 128 x 128 (fp8) or 16 x 16 (nvfp4) values, so
// that both of their products see the same values.
//
// tf32 (NVIDIA: PTX ISA, cvt.rna.tf32.f32): the exponents of f32, and 10 bits of mantissa. Values
// round to nearest, ties away from zero, and become infinity beyond the largest one. A value that
// is no number affects only the terms that it is part of. bf16 and f16 values are all in tf32.
//
// fp8 (DeepSeek-V3, 2024, section 3.3; scales as DeepGEMM rounds them for E8M0): e is the least
// exponent, but not below -127, with max / 2^e <= 448. Values round to nearest, ties to even.
//
// nvfp4 (NVIDIA: Pretraining large language models with NVFP4, arXiv 2509.25149, appendix C), in
// f32 arithmetic: s = 2688 / max of the operand, at most the largest float (1 for zeros); a block's
// scale d = E4M3(min(max / 6 * s, 448)); its values are E2M1(x * (1 / (d * (1 / s)))), where the
// factor is at most the largest float, times d: zeros where d is 0. The product is multiplied by
// both operands' 1 / s. Gradients round up or down by chance: with t the distance from the
// neighbour below, in parts of the distance between both neighbours, up if t is above a random
// number in [0, 1). All others round to nearest, ties to even.
//
// The Hadamard transform of nvfp4's weight gradients multiplies 16 terms of both operands by the
// same orthogonal matrix, which spreads outliers and leaves the product as it is: signs (those of
// NVIDIA's Transformer Engine), then H_16 / 4 by butterflies of terms 1, 2, 4 and 8 apart.
// Terms that are missing in the last block are zeros.
//
// Rounded operands are exact in f32, in which they are multiplied and summed. A block with a NaN or
// an infinity becomes NaN (not in tf32, which has no blocks); the largest value of an operand is
// the largest finite one.
#pragma once

#include <cstdint>

#include "training/core/arena.h"
#include "training/core/gemm_format.h"
#include "training/core/tensor.h"
#include "training/kernels/gemm.h"

namespace tutti::training {

enum class OperandKind : uint8_t { activation, weight, gradient };

struct QuantizedProduct {
  GemmFormat format = GemmFormat::fp8;
  OperandKind a = OperandKind::activation;
  OperandKind b = OperandKind::weight;
  bool hadamard = false;  // nvfp4
  // nvfp4: of the random numbers of gradients. An element's number is its row of op(a), from
  // `first_row` on, times the number of terms, plus its column.
  uint64_t seed = 0;
  int64_t first_row = 0;
};

// As gemm(), but for f64. Threads as there; `arena` has room for both operands in f32.
void quantized_gemm(const QuantizedProduct& product, ConstTensor a, Transpose transpose_a,
                    ConstTensor b, Transpose transpose_b, Tensor c, GemmMode mode, ConstTensor bias,
                    BitsOf bits, Arena& arena);

}  // namespace tutti::training
