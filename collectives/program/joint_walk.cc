#include "collectives/program/joint_walk.h"

#include <algorithm>

namespace tutti {

JointWalk::JointWalk(std::span<const Plan> plans)
    : walks_(plans.size()), is_awake_(plans.size(), false) {
  for (size_t rank = 0; rank < plans.size(); ++rank) walks_[rank].reset(plans[rank], 1);
}

void JointWalk::wake(int32_t rank) {
  if (is_awake_[rank]) return;
  is_awake_[rank] = true;
  awake_.push_back(rank);
}

void JointWalk::finish(int32_t rank, int32_t step) {
  walks_[rank].finish(0, step);
  wake(rank);
}

bool JointWalk::ended() const { return std::ranges::all_of(walks_, &QueueWalk::ended); }

}  // namespace tutti
