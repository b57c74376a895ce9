// Decentralized SGD: after each update a rank averages its values with those of a few others, by
// weights whose sums over senders and over receivers are 1: so the mean of all values stays.
//
//   ring      a third of its own and of both neighbours' values
//   exp       half of its own, half of those of the rank 1, 2, 4 ... below it
//   random    half of its own, half of those of its partner; partners are drawn for each exchange
//   complete  the mean of all
//
// Lian et al.: Can decentralized algorithms outperform centralized algorithms?, NeurIPS 2017;
// Assran et al.: Stochastic gradient push, ICML 2019 (the exponential graph); Boyd et al.:
// Randomized gossip algorithms, IEEE Transactions on Information Theory 2006 (pairs).
#pragma once

#include <cstdint>
#include <span>

#include "training/parallel/averaging/averaging.h"
#include "training/parallel/averaging/value_row.h"

namespace tutti::training {

class Gossip : public Averaging {
 public:
  Gossip(ParameterStorage& storage, const SyncOptions& options, uint64_t seed);

 private:
  void exchange(int64_t update) override;
  void average_with_neighbours();
  // Own values become the mean of theirs and those that come from `from`.
  void average_with(int to, int from);
  std::span<float> row(int index) const;

  uint64_t seed_;
  ValueRow values_;
  Memory<float> memory_;  // rows: own values, and what others sent
};

}  // namespace tutti::training
