// Stochastic gradient push: a rank sends half of its numerators x and half of its weight w to
// another rank, adds what it receives, and computes with x / w. The sums of x and of w over all
// ranks are preserved. Receivers need not send to their senders, and the result is unbiased even if
// a rank receives from none or from several.
//
//   rank 0   x, w  --- x/2, w/2 --->  rank 1        z = x / w: the model's values
//
// An optimizer's update changes z; x changes by the same amount.
//
// Assran, Loizou, Ballas, Rabbat: Stochastic gradient push for distributed deep learning, ICML
// 2019, algorithm 1; Kempe, Dobra, Gehrke: Gossip-based computation of aggregate information, FOCS
// 2003 (push-sum).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/parallel/averaging/averaging.h"
#include "training/parallel/averaging/value_row.h"

namespace tutti::training {

class PushSum : public Averaging {
 public:
  // Creates the synchronizer. The graph in `options` must be exponential or random.
  PushSum(ParameterStorage& storage, const SyncOptions& options, uint64_t seed);

  void publish_values() override;
  void visit_state(StateVisitor& visitor) override;

 private:
  void exchange(int64_t update) override;
  void take_update();
  void push(const std::vector<int>& targets);
  void begin_with_values();
  void publish_ratios();
  float weight() const { return row(0).back(); }
  size_t count() const { return static_cast<size_t>(values_.size()); }
  // Returns a row of memory. 0: x, then w; 1: received values; 2: values to send.
  std::span<float> row(size_t index) const {
    return {memory_.get() + index * (count() + 1), count() + 1};
  }

  uint64_t seed_;
  ValueRow values_;
  Memory<float> memory_;
  bool loaded_ = false;  // true if x and w came from a checkpoint
};

}  // namespace tutti::training
