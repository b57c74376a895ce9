// The values of MX blocks (base/block_format.h): E8M0 scales, E2M1 elements. Compiled once per
// instruction set, as convert.h is, and with its rules.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::kernels {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000U;
constexpr uint8_t kNanScale = 0xff;
constexpr int kScaleBias = 127;  // bias of E8M0
constexpr size_t kMxValues = 32;

// Returns the bits of the largest magnitude among `values`. Compared as integers, the bits of
// floats without the sign have the order of the values; NaNs are the largest.
template <size_t kCount>
inline uint32_t largest_bits(const float* values) {
  uint32_t most = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, values[i]) & 0x7fffffffU;
    most = bits > most ? bits : most;
  }
  return most;
}

// Returns 2^exponent, for -126 to 127.
inline float power_of_two(int exponent) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23);
}

// Returns the E8M0 scale of a block, given the bits of its largest magnitude and the largest
// exponent of an element.
inline uint8_t mx_scale(uint32_t largest, int most_exponent) {
  if (largest >= kInfinityBits) return kNanScale;
  if (largest == 0) return 0;
  const int field = static_cast<int>(largest >> 23);
  const int exponent = field > 0 ? field - 127 : -118 - __builtin_clz(largest);
  const int scale = exponent - most_exponent;
  return static_cast<uint8_t>((scale < -kScaleBias ? -kScaleBias : scale) + kScaleBias);
}

// Multiplies by 2^exponent in two steps, so that the exponent may exceed a float's range.
template <size_t kCount>
inline void multiply(float* values, int exponent) {
  const int half = exponent / 2;
  const float first = power_of_two(half);
  const float second = power_of_two(exponent - half);
  for (size_t i = 0; i < kCount; ++i) values[i] = values[i] * first * second;
}

inline float clamped(float value, float most) {
  const float above = value < -most ? -most : value;
  return above > most ? most : above;
}

// Divides the values by their block's scale and clamps them to +-most. Returns the scale. If a
// value is NaN or infinite, all values become zeros.
inline uint8_t scale_down(float* values, int most_exponent, float most) {
  const uint8_t scale = mx_scale(largest_bits<kMxValues>(values), most_exponent);
  if (scale == kNanScale) {
    for (size_t i = 0; i < kMxValues; ++i) values[i] = 0;
    return scale;
  }
  multiply<kMxValues>(values, kScaleBias - scale);
  for (size_t i = 0; i < kMxValues; ++i) values[i] = clamped(values[i], most);
  return scale;
}

inline void scale_up(float* values, uint8_t scale) {
  if (scale == kNanScale) {
    for (size_t i = 0; i < kMxValues; ++i) values[i] = __builtin_nanf("");
    return;
  }
  multiply<kMxValues>(values, scale - kScaleBias);
}

// Encodes E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Ties go to the even code.
inline uint32_t e2m1(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const float x = __builtin_bit_cast(float, bits & 0x7fffffffU);
  const uint32_t code = uint32_t{x > 0.25f} + uint32_t{x >= 0.75f} + uint32_t{x > 1.25f} +
                        uint32_t{x >= 1.75f} + uint32_t{x > 2.5f} + uint32_t{x >= 3.5f} +
                        uint32_t{x > 5.0f};
  return code | (bits >> 31) << 3;
}

// Decodes E2M1: from code 2 on, 1 or 1.5 times a power of two.
inline float value_of_e2m1(uint32_t code) {
  const uint32_t magnitude = code & 7;
  const uint32_t normal = (126 + (magnitude >> 1)) << 23 | (magnitude & 1) << 22;
  const uint32_t half = magnitude == 1 ? __builtin_bit_cast(uint32_t, 0.5f) : 0;
  return __builtin_bit_cast(float, (magnitude > 1 ? normal : half) | (code & 8) << 28);
}

}  // namespace
}  // namespace tutti::kernels
