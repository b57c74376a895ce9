// The plans of all ranks walked in one thread: each rank does what its queues let it do, until
// nobody can do more. What a step does is for the caller to say.
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
  // `plans[r]`: rank r's. They must live as long as the walk.
  explicit JointWalk(std::span<const Plan> plans);

  // attempt(rank, step) does the step, or not yet. It wakes the ranks that it lets go on.
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
