// Fixed-point sums modulo 2^64 in which masks cancel. Each pair of participating clients shares
// random words; the client with the lower index adds them and the other one subtracts them. A
// client's masked words therefore reveal nothing about its values, and the sum has the same bits
// with and without masks.
//
//   client 0   x0 + m01 + m02
//   client 1   x1 - m01 + m12
//   client 2   x2 - m02 - m12          sum: x0 + x1 + x2
//
// Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017,
// section 4.0.1. Limits: the pairs' seeds are not agreed upon in secret, but derived from the run's
// seed, which every rank has. If a client drops out during a sum, the sum fails. Masks are
// random_bits(), which is not a cipher. A client that is alone in a round has no mask.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::training {

// Converts values to integers in units of 2^-36, rounded to nearest. Throws Error(invalid_argument)
// for NaN, and for a value so large that a sum of `clients` such values would overflow.
void to_fixed_point(std::span<const float> values, int clients, std::span<uint64_t> words);
void from_fixed_point(std::span<const uint64_t> words, std::span<float> values);

// Adds to `words` the masks that `client`, a participant of the round, shares with each other
// participant. `first`: index of words[0] among all words of the round.
void add_masks(std::span<uint64_t> words, int client, const std::vector<bool>& takes_part,
               uint64_t seed, int64_t round, uint64_t first);

}  // namespace tutti::training
