// Sums in fixed point modulo 2^64 in which masks cancel: each pair of clients that take part has
// the same random words, which the one with the lower number adds and the other one subtracts. So a
// client's words tell nothing of its values without the masks, and the sum has the same bits with
// masks and without.
//
//   client 0   x0 + m01 + m02
//   client 1   x1 - m01 + m12
//   client 2   x2 - m02 - m12          sum: x0 + x1 + x2
//
// Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017,
// section 4.0.1. What that paper has besides is not here: pairs do not agree on keys, their seeds
// follow from the run's seed, which every rank knows; and a client that drops out in the middle of
// a sum is not recovered from, the sum fails. Masks are random_bits(), which is no cipher. A client
// that is alone in a round has no mask.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::training {

// Words of the values in units of 2^-36, rounded to the nearest. Throws Error(invalid_argument) for
// a value whose sum with others as large of `clients` clients would not fit, and for NaN.
void to_fixed_point(std::span<const float> values, int clients, std::span<uint64_t> words);
void from_fixed_point(std::span<const uint64_t> words, std::span<float> values);

// Adds the masks that a client has with each other one that takes part, in a round; it takes part
// itself. `first`: the number of the first word in the round.
void add_masks(std::span<uint64_t> words, int client, const std::vector<bool>& takes_part,
               uint64_t seed, int64_t round, uint64_t first);

}  // namespace tutti::training
