// Decentralized SGD: after each update a rank averages its values with those of a few other ranks.
// The matrix of weights is doubly stochastic, so averaging preserves the mean of all values.
//
// A rank's new values, for each graph:
//   ring      1/3 of its own values + 1/3 of each neighbour's values
//   exp       1/2 of its own values + 1/2 of the values of the rank that is 1, 2, 4 ... below it
//   random    1/2 of its own values + 1/2 of its partner's values; pairs are random
//   complete  the mean of all ranks' values
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
  // Sends this rank's values to rank `to`, and replaces them by the mean of them and the values
  // received from rank `from`.
  void average_with(int to, int from);
  std::span<float> row(int index) const;

  uint64_t seed_;
  ValueRow values_;
  Memory<float> memory_;  // one row of own values, then rows of received values
};

}  // namespace tutti::training
