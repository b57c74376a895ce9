// Weights in blocks of few bits, for models that are not trained. Products and look-ups read them
// directly and convert only a few rows at a time to f32.
//
//   q8_0   |d |q q ... q|     32 values  d q, d in f16, q from -127 to 127       34 bytes
//   q4_0   |d |qq qq .. |     32 values  d (q - 8), d in f16, q from 0 to 15     18 bytes
//   nf4    |d |qq qq .. |     64 values  d NF4[q], d in f32, q from 0 to 15      36 bytes
//
// q8_0 and q4_0 equal ggml's formats (llama.cpp) bit for bit. q8_0: d = max |x| / 127, and q is x *
// (1 / d), rounded to nearest, ties away from 0. q4_0: d = m / -8, where m is the first value of
// the largest magnitude; q is x * (1 / d) + 8.5, truncated, and at most 15. The lower halves of the
// bytes are the first 16 values. q is computed before d is rounded to f16.
//
// nf4 is bitsandbytes' format (Dettmers et al.: QLoRA, 2023) in blocks of 64: d = max |x|, and q is
// the code whose value is nearest to x * (1 / d), on a tie the lower one. The upper half of a byte
// is the first of its two values. The codes are quantiles of a normal distribution.
//
// 1 / d is at most the largest float. Blocks follow the rows of a matrix; the last block of a row
// is padded with zeros. A block with a NaN or an infinity becomes NaN. The bytes are the same on
// all processors (little-endian).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "training/core/tensor.h"

namespace tutti::training {

enum class WeightFormat : uint8_t { q8_0, q4_0, nf4 };

std::string_view name(WeightFormat format);
// Returns the format of that name, or nullopt if there is none.
std::optional<WeightFormat> weight_format_named(std::string_view name);

// Returns the bytes of a row of `cols` values.
int64_t bytes_of_row(WeightFormat format, int64_t cols);

// A view of a quantized matrix in the host's memory, which it does not own.
struct QuantizedMatrix {
  WeightFormat format = WeightFormat::q8_0;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  const std::byte* row(int64_t index) const { return data + index * bytes_of_row(format, cols); }
  int64_t bytes() const { return rows * bytes_of_row(format, cols); }
};

// Quantizes one row. `bytes` has bytes_of_row() elements.
void quantize_row(WeightFormat format, std::span<const float> values, std::span<std::byte> bytes);
void dequantize_row(WeightFormat format, std::span<const std::byte> bytes, std::span<float> values);

// Computes y = x W^T + bias, as gemm() (kernels/gemm.h) does with the values of W. All tensors have
// the same type, which is not f64, and W's values are rounded to that type. An empty `bias` is
// skipped.
void multiply_by_weights(ConstTensor x, const QuantizedMatrix& w, ConstTensor bias, Tensor y);

// Sets row i of `output` to row indices[i] of the matrix. Throws Error(invalid_argument) for an
// index out of range.
void look_up(const QuantizedMatrix& table, std::span<const int32_t> indices, Tensor output);

}  // namespace tutti::training
