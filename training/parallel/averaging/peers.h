// Computes the senders and receivers of one exchange of values. Every rank computes them from the
// index of the exchange, without communication.
#pragma once

#include <cstdint>
#include <vector>

#include "training/parallel/sync_options.h"

namespace tutti::training {

// Returns the receiver of each rank, which is 1, 2, 4 ... ranks further. The distance doubles with
// each exchange, so that after log2(ranks) exchanges (rounded up) each value has reached all ranks;
// it then starts again at 1 (Assran et al. 2019, section 3).
std::vector<int> exponential_targets(int ranks, int64_t exchange);
// Returns a random receiver for each rank, so that a rank may receive from none, one or several
// ranks.
std::vector<int> random_targets(int ranks, uint64_t seed, int64_t exchange);
// Returns the partner of each rank in a random pairing. If the number of ranks is odd, the rank
// that is left over is its own partner.
std::vector<int> random_pairs(int ranks, uint64_t seed, int64_t exchange);
// Returns the random odd rank with which the even rank `asker` averages its values in AD-PSGD.
// There must be at least 2 ranks.
int random_answerer(int ranks, uint64_t seed, int64_t exchange, int asker);
// Selects `count` of `ranks` ranks at random. Element r of the result is true if rank r is
// selected. The same `seed` and `exchange` give the same ranks.
std::vector<bool> random_members(int ranks, int count, uint64_t seed, int64_t exchange);
// Return the neighbours of a rank in the ring of all ranks; they are equal if there are 2 ranks.
int left_of(int rank, int ranks);
int right_of(int rank, int ranks);

}  // namespace tutti::training
