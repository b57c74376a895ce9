// Which buckets of gradients are complete on this rank, and which is to be summed over ranks next:
// bookkeeping alone, without memory and without messages (data_parallel.h has both).
//
//   begin_step() -> contribute() for each use of a parameter, once a micro-batch
//                     -> next(): the buckets that may be summed, every rank in the same order
//
// Buckets are summed once a step, one after the other. Where the gradients of each micro-batch are
// summed by themselves, a bucket has a round for each; then it is summed when its round ends, which
// comes in the same order on all ranks that run their units in the same order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "training/core/layout.h"

namespace tutti::training {

class BucketProgress {
 public:
  // `used_by`: the parameters of each unit. `joined`: parameters that another pipeline stage adds
  // to as well, once, at the end of a step. `by_micro_batch`: a round for each, but for what is
  // joined.
  BucketProgress(const Layout& layout, std::vector<std::vector<int>> used_by,
                 std::vector<int> joined, bool by_micro_batch);

  // `passes`: by unit, how often its backward runs.
  void begin_step(std::span<const int64_t> passes);
  // To the gradient of a parameter. Whether it was the step's last one.
  bool contribute(int parameter);
  // A bucket that is to be summed now, told once.
  std::optional<int> next();
  // Every bucket was told as often as it is to be.
  bool complete() const;
  // The parameters that lack contributions.
  std::vector<int> missing() const;
  // They will have none: what is left of the buckets may be summed. Not by micro-batch.
  void give_up_waiting();
  // Has a joined parameter.
  bool joined(int bucket) const { return buckets_[static_cast<size_t>(bucket)].joined; }

 private:
  struct State {
    bool joined = false;
    int64_t in_round = 0;       // contributions
    int64_t contributions = 0;  // still to come in this round
    int64_t rounds = 0;         // still to end
  };
  void tell_in_order();

  const Layout& layout_;
  const std::vector<std::vector<int>> used_by_;
  const std::vector<int> joined_;
  const bool by_micro_batch_;
  std::vector<State> buckets_;
  std::vector<int64_t> expected_;  // by parameter: contributions in this step
  std::vector<int64_t> reached_;   // by parameter: those that have been made
  int first_untold_ = 0;           // where all are told in order
  std::deque<int> told_;           // and not taken yet
};

}  // namespace tutti::training
