// Block formats: floats in 8, 4 or 1 bit each, with one scale per block.
//
//   mx8    |e|v v v ... v|   32 E4M3 values, scale 2^e (E8M0)     33 bytes    MXFP8
//   mx4    |e|vv vv .. vv|   32 E2M1 values, scale 2^e (E8M0)     17 bytes    MXFP4
//   int8   |s   |v ... v|    256 integers, scale f32             260 bytes
//   sign   |s   |bbbb ..|    256 signs, scale f32                 36 bytes
//
// A block is encoded by itself; the last one of a row may have fewer values. The bytes are the
// same on all processors (little-endian scales, low bits first).
//
// mx8 and mx4: OCP Microscaling Formats (MX) v1.0, sections 5 and 6.3. e = floor(log2(max |x|)) -
// emax, with emax 8 (E4M3) and 2 (E2M1), at least -127; x / 2^e is rounded to nearest, ties to
// even, and saturates at 448 and 6. A block with a NaN or an infinity becomes NaN (scale 0xff).
// int8: scale = max |x| / 127; x / scale is rounded to nearest, ties to even. NaN or infinity in a
// block makes the block NaN. sign: scale = mean of |x|; a value is +scale or -scale (0 is +), as in
// Karimireddy et al.: Error feedback fixes SignSGD (2019).
//
// If a block must have its full length (as an element of element_of() must), missing values are
// padding(). Padding does not affect the values, and stays padding when it is decoded and combined.
// A block of signs with padding has a negative scale, and a marker bit 1 behind its last sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace tutti {

enum class BlockFormat : uint8_t { mx8, mx4, int8, sign };

// Returns the dtype whose elements are blocks of this format.
constexpr DType element_of(BlockFormat format) {
  return static_cast<DType>(kAllDTypes.size() + static_cast<size_t>(format));
}
constexpr BlockFormat block_format_of(DType element) {
  return static_cast<BlockFormat>(static_cast<size_t>(element) - kAllDTypes.size());
}

std::string_view name(BlockFormat format);
// Returns nullopt if there is no such format.
std::optional<BlockFormat> block_format_named(std::string_view name);

// Returns the value of a missing element: 0, or for `sign` a reserved NaN, because zeros would
// change the mean.
float padding(BlockFormat format);

// Returns the number of values per block.
size_t block_of(BlockFormat format);
// Returns the number of bytes of `count` encoded values, the first of which begins a block.
size_t bytes_of(BlockFormat format, size_t count);

// Encodes `values` into `bytes`, which must have bytes_of(format, values.size()) elements and must
// not overlap `values`. Thread-safe; never throws.
void encode(BlockFormat format, std::span<const float> values, std::span<std::byte> bytes);
void decode(BlockFormat format, std::span<const std::byte> bytes, std::span<float> values);

}  // namespace tutti
