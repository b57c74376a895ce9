// SyncBN's reducer for ranks that are threads of one test.
#pragma once

#include <barrier>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "training/modules/batch_norm.h"

namespace tutti::training::testing {

// Sums over the ranks, in rank order. Each thread uses the reducer of its own rank.
class SharedSum {
 public:
  explicit SharedSum(int ranks) : parts_(static_cast<size_t>(ranks)), barrier_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) reducers_.emplace_back(*this, rank);
  }
  SharedSum(const SharedSum&) = delete;
  SharedSum& operator=(const SharedSum&) = delete;

  StatisticsReducer& reducer(int rank) { return reducers_[static_cast<size_t>(rank)]; }

 private:
  class Reducer : public StatisticsReducer {
   public:
    Reducer(SharedSum& shared, int rank) : shared_(shared), rank_(static_cast<size_t>(rank)) {}
    void sum(std::span<double> values) override {
      shared_.parts_[rank_].assign(values.begin(), values.end());
      shared_.barrier_.arrive_and_wait();
      for (double& value : values) value = 0;
      for (const std::vector<double>& part : shared_.parts_) {
        for (size_t i = 0; i < values.size(); ++i) values[i] += part[i];
      }
      shared_.barrier_.arrive_and_wait();  // all ranks have read the sum
    }

   private:
    SharedSum& shared_;
    size_t rank_;
  };

  std::vector<std::vector<double>> parts_;
  std::barrier<> barrier_;
  std::deque<Reducer> reducers_;
};

}  // namespace tutti::training::testing
