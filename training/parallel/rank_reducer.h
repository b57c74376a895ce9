// Sums norms over the ranks of a communicator.
#pragma once

#include <algorithm>
#include <utility>

#include "collectives/communicator.h"
#include "training/optimizers/norm_reducer.h"

namespace tutti::training {

// Sums over ranks. If several ranks have copies of the same parts of parameters, each part counts
// once.
class RankReducer : public NormReducer {
 public:
  // Creates the reducer. `counts`: true if this rank's terms count, i.e. if no earlier rank in
  // `owners` has the same parts. All calls are collective over `owners`.
  RankReducer(Communicator owners, bool counts) : owners_(std::move(owners)), counts_(counts) {}
  void sum(std::span<int64_t> limbs) override {
    if (owners_.size() == 1) return;
    if (!counts_) std::ranges::fill(limbs, 0);
    owners_.all_reduce(limbs);
  }

 private:
  Communicator owners_;
  bool counts_;
};

}  // namespace tutti::training
