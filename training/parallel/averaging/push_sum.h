// Stochastic gradient push: a rank sends half of its numerators x and half of its weight w to
// another rank, adds what it receives, and computes with x / w. Senders need not be receivers, and
// a rank that receives from none or several is not biased: the sums of x and of w over all ranks
// are preserved.
//
//   rank 0   x, w  --- x/2, w/2 --->  rank 1        z = x / w: the model's values
//
// A rank's own update moves x by as much as it moved z.
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
  // The graph must be exponential or random.
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
  // Row 0: x, then w; 1: received; 2: to send.
  std::span<float> row(size_t index) const {
    return {memory_.get() + index * (count() + 1), count() + 1};
  }

  uint64_t seed_;
  ValueRow values_;
  Memory<float> memory_;
  bool loaded_ = false;  // x and w, from a checkpoint
};

}  // namespace tutti::training
