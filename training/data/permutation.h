// A random permutation of [0, size) that is computed, not stored.
#pragma once

#include <bit>
#include <cstdint>

#include "training/core/random.h"

namespace tutti::training {

// Returns the position to which the permutation with this key moves `index` < `size`. Takes O(1)
// time (a few dozen ns) and no memory.
//
// A Feistel network permutes the numbers that have as many bits as size - 1. A result outside [0,
// size) is permuted again until it is inside, which takes fewer than two applications on average
// (cycle walking; Black, Rogaway: Ciphers with arbitrary finite domains, CT-RSA 2002). Not secure
// against adversaries.
constexpr uint64_t permute(uint64_t key, uint64_t index, uint64_t size) {
  constexpr uint64_t kRounds = 8;
  const int bits = static_cast<int>(std::bit_width(size - 1));
  const int low_bits = bits / 2;
  const uint64_t low_mask = (uint64_t{1} << low_bits) - 1;
  const uint64_t high_mask = (uint64_t{1} << (bits - low_bits)) - 1;
  do {
    uint64_t low = index & low_mask;
    uint64_t high = index >> low_bits;
    for (uint64_t round = 0; round < kRounds; round += 2) {
      high ^= random_bits(key, round, low) & high_mask;
      low ^= random_bits(key, round + 1, high) & low_mask;
    }
    index = high << low_bits | low;
  } while (index >= size);
  return index;
}

}  // namespace tutti::training
