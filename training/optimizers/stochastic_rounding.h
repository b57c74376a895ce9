// Stochastic rounding (Croci, Fasi, Higham, Mary, Mikaitis: Stochastic rounding: implementation,
// error analysis and applications, 2022): up or down at random, so that the expected result is the
// exact number, and updates below half a unit in the last place are not lost.
//
// Compiled once per instruction set, hence in an anonymous namespace.
#pragma once

#include <cstdint>

namespace tutti::training {
namespace {

// Rounds `value` to bf16. The 16 random bits are added below the mantissa bits that are kept: the
// fraction of their 2^16 values that carry equals the part cut off. Infinities and NaNs are kept.
constexpr uint16_t round_to_bf16(float value, uint16_t random) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + random) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

}  // namespace
}  // namespace tutti::training
