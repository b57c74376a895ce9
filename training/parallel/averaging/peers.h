// The senders and receivers of one exchange of values. Every rank computes the same ones from the
// number of the exchange, without a message.
#pragma once

#include <cstdint>
#include <vector>

#include "training/parallel/sync_options.h"

namespace tutti::training {

// By rank, the one that it sends to: 1, 2, 4 ... ranks further, a power of two in each exchange, so
// that after log2(ranks) exchanges each value has reached all (Assran et al. 2019, section 3).
std::vector<int> exponential_targets(int ranks, int64_t exchange);
// Another one at random: some ranks receive from several, some from none.
std::vector<int> random_targets(int ranks, uint64_t seed, int64_t exchange);
// By rank, its partner at random, whose partner it is; itself where the number is odd.
std::vector<int> random_pairs(int ranks, uint64_t seed, int64_t exchange);
// The rank that one with an even number asks in AD-PSGD: any with an odd number, of at least 2
// ranks.
int random_answerer(int ranks, uint64_t seed, int64_t exchange, int asker);
// By rank, whether it is one of `count` that are drawn at random.
std::vector<bool> random_members(int ranks, int count, uint64_t seed, int64_t exchange);
// Both neighbours of a rank in the ring of all; of 2 ranks they are the same one.
int left_of(int rank, int ranks);
int right_of(int rank, int ranks);

}  // namespace tutti::training
