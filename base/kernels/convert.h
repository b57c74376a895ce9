// Branch-free conversions between float and the small floating-point types (rules: base/half.h).
//
// This header is compiled once per instruction set. All of it sits in an anonymous namespace, so
// that no function built with wide instructions can be linked into a program in place of a plain
// one; for the same reason it calls nothing of the standard library.
#pragma once

#include <cstdint>

namespace tutti::kernels {
namespace {

// A floating-point encoding as in IEEE 754: a sign bit, the exponent, and `mantissa` bits of the
// mantissa. `largest` encodes the largest finite value. `overflow` encodes larger values: it is
// infinity, or NaN in a type without infinity. `nan` encodes the quiet NaN; codes above `overflow`
// are the other NaNs.
template <typename Encoding, int mantissa, int bias, uint32_t largest, uint32_t overflow,
          uint32_t nan>
struct SmallFloat {
  using Bits = Encoding;

  static constexpr int kSignBit = 8 * static_cast<int>(sizeof(Bits)) - 1;
  static constexpr int kShift = 23 - mantissa;  // distance to the position of float's mantissa

  static constexpr float widen(Bits bits) {
    const uint32_t sign = (uint32_t{bits} >> kSignBit) << 31;
    const uint32_t magnitude = bits & ((1u << kSignBit) - 1);
    const uint32_t normal = (magnitude << kShift) + (uint32_t{127 - bias} << 23);
    // Subnormals are integer multiples of the smallest one.
    constexpr float kSmallest = __builtin_bit_cast(float, uint32_t{128 - bias - mantissa} << 23);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * kSmallest;
    const uint32_t special =
        overflow == nan || magnitude > overflow ? 0x7fc00000u | (magnitude << kShift) : 0x7f800000u;
    uint32_t result =
        magnitude < (1u << mantissa) ? __builtin_bit_cast(uint32_t, subnormal) : normal;
    result = magnitude > largest ? special : result;
    return __builtin_bit_cast(float, result | sign);
  }

  static constexpr Bits narrow(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t sign = (bits >> 31) << kSignBit;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Adds half a unit in the last place, minus one bit if the result is already even.
    const uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1);
    const uint32_t normal = (rounded >> kShift) - (uint32_t{127 - bias} << mantissa);
    // Floats near this number are spaced like the type's subnormals, so adding it rounds.
    constexpr uint32_t kMagic = uint32_t{151 - bias - mantissa} << 23;
    const float shifted = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, kMagic);
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, shifted) - kMagic;
    constexpr uint32_t kSmallestNormal = uint32_t{128 - bias} << 23;
    uint32_t result = magnitude < kSmallestNormal ? subnormal : normal;
    result = result > largest ? overflow : result;
    result |= sign;
    return static_cast<Bits>(
        magnitude > 0x7f800000u || (overflow == nan && (result & nan) == nan) ? nan : result);
  }
};

using F16 = SmallFloat<uint16_t, 10, 15, 0x7bff, 0x7c00, 0x7e00>;
using F8E4M3 = SmallFloat<uint8_t, 3, 7, 0x7e, 0x7f, 0x7f>;
using F8E5M2 = SmallFloat<uint8_t, 2, 15, 0x7b, 0x7c, 0x7e>;

// bfloat16 is the upper half of a float.
struct BF16 {
  using Bits = uint16_t;

  static constexpr float widen(Bits bits) {
    return __builtin_bit_cast(float, uint32_t{bits} << 16);
  }

  static constexpr Bits narrow(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1);
    return static_cast<Bits>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded >> 16);
  }
};

}  // namespace
}  // namespace tutti::kernels
