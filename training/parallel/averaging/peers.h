// The senders and receivers of one exchange of values. Every rank computes them from the number of
// the exchange, without communication.
#pragma once

#include <cstdint>
#include <vector>

#include "training/parallel/sync_options.h"

namespace tutti::training {

// By rank, its receiver: 1, 2, 4 ... ranks further, a power of two per exchange, so that after
// log2(ranks) exchanges each value has reached all (Assran et al. 2019, section 3).
std::vector<int> exponential_targets(int ranks, int64_t exchange);
// By rank, a random receiver: some ranks receive from several, some from none.
std::vector<int> random_targets(int ranks, uint64_t seed, int64_t exchange);
// By rank, its partner in a random pairing; itself if it is left over from an odd number.
std::vector<int> random_pairs(int ranks, uint64_t seed, int64_t exchange);
// The rank that an even rank asks in AD-PSGD: a random odd one, of at least 2 ranks.
int random_answerer(int ranks, uint64_t seed, int64_t exchange, int asker);
// Draws `count` of `ranks` ranks at random. Element r of the result is true if rank r was drawn.
// The same `seed` and `exchange` give the same ranks.
std::vector<bool> random_members(int ranks, int count, uint64_t seed, int64_t exchange);
// The neighbours of a rank in the ring of all ranks; equal if there are 2 ranks.
int left_of(int rank, int ranks);
int right_of(int rank, int ranks);

}  // namespace tutti::training
