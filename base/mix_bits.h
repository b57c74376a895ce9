#pragma once

#include <cstdint>

namespace tutti {

// Mixes the bits of `x` by the finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable
// pseudorandom number generators, OOPSLA 2014): a bijection in which each input bit changes half of
// the output bits on average.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The increment of splitmix64: mix_bits(seed + n * kGolden) is the n-th output for that seed.
inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

}  // namespace tutti
