// Products of operands that are first rounded to a narrow format, as tensor cores of GPUs multiply
// them. This is an emulation: it gives the values of training in these formats, not the speed.
//
//   format   values   block           scale of a block           scale of an operand
//   tf32     E8M10    -               -                          -
//   fp8      E4M3     128             2^e, 2^e >= max / 448      -
//   mxfp8    E4M3     32              2^e, E8M0 (base/block_format.h, mx8)   -
//   nvfp4    E2M1     16              E4M3                       f32
//
// Blocks follow the dimension over which the product sums, from its first term on; the last block
// may be shorter. Weights have one scale for a square of 128 x 128 (fp8) or 16 x 16 (nvfp4) values,
// so that both products with the weights (output and input gradient) use the same rounded values.
//
// tf32 (NVIDIA: PTX ISA, cvt.rna.tf32.f32): the exponents of f32, and 10 bits of mantissa. Values
// round to nearest, ties away from zero, and overflow to infinity. NaNs and infinities are kept.
// bf16 and f16 values are exact in tf32.
//
// fp8 (DeepSeek-V3, 2024, section 3.3; scales as DeepGEMM rounds them for E8M0): e is the smallest
// exponent, but at least -127, for which max / 2^e <= 448. Values round to nearest, ties to even.
//
// nvfp4 (NVIDIA: Pretraining large language models with NVFP4, arXiv 2509.25149, appendix C), in
// f32 arithmetic: s = 2688 / max of the operand, at most the largest float (1 for zeros). A block's
// scale is d = E4M3(min(max / 6 * s, 448)). Its values are d * E2M1(x * (1 / (d * (1 / s)))), where
// the factor of x is at most the largest float; they are zeros if d is 0. The product is multiplied
// by both operands' 1 / s. Gradients are rounded stochastically: with t the distance from the lower
// neighbour, as a fraction of the distance between both neighbours, a value rounds up if t is above
// a random number in [0, 1). All other operands round to nearest, ties to even.
//
// The Hadamard transform of nvfp4's weight gradients multiplies 16 terms of both operands by the
// same orthogonal matrix, which spreads outliers and does not change the exact product. The matrix
// consists of signs (those of NVIDIA's Transformer Engine), then H_16 / 4 by butterflies of terms
// 1, 2, 4 and 8 apart. Terms that are missing in the last block are zeros.
//
// Rounded operands are exact in f32, in which they are multiplied and summed. A block with a NaN or
// an infinity becomes NaN (tf32 has no blocks); the max of an operand is taken over its finite
// values.
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
  bool hadamard = false;  // nvfp4: apply the Hadamard transform
  // nvfp4: seed of the random numbers that round gradients. The index of an element's random number
  // is (first_row + row) * terms + term, where `row` is its row of op(a) (for an element of b: its
  // column of op(b)) and `terms` is the number of terms (with `hadamard`, rounded up to whole
  // blocks).
  uint64_t seed = 0;
  int64_t first_row = 0;
};

// Computes what gemm() computes, but with rounded operands. Tensors must not be f64. The calling
// thread's pool computes parts. `arena` must have room for both operands and the product in f32.
void quantized_gemm(const QuantizedProduct& product, ConstTensor a, Transpose transpose_a,
                    ConstTensor b, Transpose transpose_b, Tensor c, GemmMode mode, ConstTensor bias,
                    BitsOf bits, Arena& arena);

}  // namespace tutti::training
