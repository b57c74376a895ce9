// Norms over the ranks of a communicator.
#pragma once

#include <algorithm>
#include <utility>

#include "collectives/communicator.h"
#include "training/optimizers/norm_reducer.h"

namespace tutti::training {

// Sums over the ranks that have parts of the same parameters, or of different ones, each part once.
class RankReducer : public NormReducer {
 public:
  // `counts`: whether this rank's parts are nobody else's in `owners`, or it is the first that has
  // them. All ranks of `owners` make each call.
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
