// Sums batch statistics over all ranks of a communicator, for SyncBN.
#pragma once

#include <utility>

#include "collectives/communicator.h"
#include "training/modules/batch_norm.h"

namespace tutti::training {

// Sums over ranks. Collective: every rank must run the same layers the same number of times in a
// step.
class RankStatistics : public StatisticsReducer {
 public:
  explicit RankStatistics(Communicator communicator) : communicator_(std::move(communicator)) {}
  void sum(std::span<double> values) override { communicator_.all_reduce(values); }

 private:
  Communicator communicator_;
};

}  // namespace tutti::training
