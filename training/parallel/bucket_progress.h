// Tracks which buckets of gradients are complete on this rank, and which one to reduce over ranks
// next. It neither holds gradients nor sends messages (data_parallel.h does both).
//
//   begin_step() -> contribute() for each use of a parameter, once a micro-batch
//                     -> next(): the buckets that may be summed, every rank in the same order
//
// Normally a bucket is reduced once per step. If each micro-batch is reduced separately, a bucket
// has one round per micro-batch and is reduced at the end of each round. The order is the same on
// all ranks that run their units in the same order.
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
  // Creates the tracker. `used_by`: the parameters of each unit. `joined`: parameters to which
  // another pipeline stage contributes once, at the end of a step. `by_micro_batch`: reduce a
  // bucket once per micro-batch, unless it has a joined parameter.
  BucketProgress(const Layout& layout, std::vector<std::vector<int>> used_by,
                 std::vector<int> joined, bool by_micro_batch);

  // Starts a step. `passes`: for each unit, the number of times that its backward runs.
  void begin_step(std::span<const int64_t> passes);
  // Counts a contribution to a parameter's gradient. Returns true if it was the step's last one.
  bool contribute(int parameter);
  // Returns the next bucket to reduce, if one is ready. Returns each bucket once per round.
  std::optional<int> next();
  // Returns true if every bucket has received all contributions of the step.
  bool complete() const;
  // Returns the parameters that lack contributions.
  std::vector<int> missing() const;
  // Stops waiting for missing contributions, so that next() also returns the remaining buckets. Not
  // allowed with by_micro_batch.
  void give_up_waiting();
  // Returns true if the bucket has a joined parameter.
  bool joined(int bucket) const { return buckets_[static_cast<size_t>(bucket)].joined; }

 private:
  struct State {
    bool joined = false;
    int64_t in_round = 0;       // number of contributions per round
    int64_t contributions = 0;  // number of contributions still missing in this round
    int64_t rounds = 0;         // number of rounds that have not ended
  };
  void report_in_order();

  const Layout& layout_;
  const std::vector<std::vector<int>> used_by_;
  const std::vector<int> joined_;
  const bool by_micro_batch_;
  std::vector<State> buckets_;
  std::vector<int64_t> expected_;  // by parameter: number of contributions in this step
  std::vector<int64_t> reached_;   // by parameter: number of contributions so far
  int first_unreported_ = 0;       // first bucket that is not ready yet; unused if by_micro_batch_
  std::deque<int> ready_;          // buckets that are ready, but not returned by next() yet
};

}  // namespace tutti::training
