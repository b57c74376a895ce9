// Counter-based random numbers: a value is a function of its coordinates, not of how many were
// drawn before it, so every rank can draw any part of the sequence and gets the same on every
// machine.
#pragma once

#include <cstdint>

namespace tutti::training {

// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014): a bijection in which each input bit changes half of the output bits.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  return mix_bits(mix_bits(mix_bits(seed + kGolden) + stream * kGolden) + index * kGolden);
}

// Uniform in [0, bound).
constexpr uint64_t scale_below(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// Uniform in [-limit, limit), on a grid of 2^24 values.
constexpr float scale_symmetric(uint64_t bits, float limit) {
  return (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * limit;
}

}  // namespace tutti::training
