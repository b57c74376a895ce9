// Walks the plans of all ranks in one thread: runs the steps that each rank's queues allow, until
// no rank can continue. The caller defines the effect of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "collectives/program/queue_walk.h"

namespace tutti {

class JointWalk {
 public:
  // Prepares the walk. `plans[r]` is rank r's plan and must outlive the walk.
  explicit JointWalk(std::span<const Plan> plans);

  // Runs all steps that can run. attempt(rank, step) runs the step, or returns Attempt::waits if
  // the step cannot run yet. It must call wake() for each rank whose steps it may have unblocked.
  // For a step for which it returned Attempt::begun, the caller later calls finish().
  template <typename AttemptStep>
  void run(const AttemptStep& attempt);
  void wake(int32_t rank);
  void finish(int32_t rank, int32_t step);

  const QueueWalk& of(int32_t rank) const { return walks_[rank]; }
  bool ended() const;

 private:
  std::vector<QueueWalk> walks_;
  std::deque<int32_t> awake_;
  std::vector<bool> is_awake_;
};

template <typename AttemptStep>
void JointWalk::run(const AttemptStep& attempt) {
  for (size_t rank = 0; rank < walks_.size(); ++rank) wake(static_cast<int32_t>(rank));
  while (!awake_.empty()) {
    const int32_t rank = awake_.front();
    awake_.pop_front();
    is_awake_[rank] = false;
    while (walks_[rank].progress([&](uint32_t, int32_t step) { return attempt(rank, step); })) {
    }
  }
}

}  // namespace tutti
