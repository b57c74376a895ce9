// Stochastic rounding (Croci, Fasi, Higham, Mary, Mikaitis: Stochastic rounding: implementation,
// error analysis and applications, 2022): rounds up or down at random such that the expected result
// is the exact number. Updates below half a unit in the last place are therefore not lost.
//
// Compiled once per instruction set, hence in an anonymous namespace.
#pragma once

#include <cstdint>

namespace tutti::training {
namespace {

// Rounds `value` to bf16: adds `random` to the low 16 bits and truncates them. The magnitude is
// rounded up with probability (low 16 bits) / 2^16. Infinities are preserved; every NaN becomes the
// quiet NaN 0x7fc0.
constexpr uint16_t round_to_bf16(float value, uint16_t random) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + random) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

}  // namespace
}  // namespace tutti::training
