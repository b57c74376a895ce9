// Counter-based random numbers: a value depends on its coordinates alone, not on earlier draws.
// Every rank can therefore compute any part of the sequence, and all machines get the same values.
#pragma once

#include <cstdint>

#include "base/mix_bits.h"

namespace tutti::training {

constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix_bits(mix_bits(mix_bits(seed + kGolden) + stream * kGolden) + index * kGolden);
}

// Maps random bits to a uniform integer in [0, bound).
constexpr uint64_t scale_below(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// Maps random bits to a uniform number in [-limit, limit), on a grid of 2^24 values.
constexpr float scale_symmetric(uint64_t bits, float limit) {
  return (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * limit;
}

}  // namespace tutti::training
