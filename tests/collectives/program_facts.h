// Counts the figures that the literature states for an algorithm (rounds, messages, volume) in the
// algorithm's programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/plan.h"

namespace tutti {

inline int32_t chunks_in(const RangeList& ranges) {
  int32_t count = 0;
  for (const ChunkRange& range : ranges) count += range.count;
  return count;
}

inline int32_t messages_sent(const Program& program) {
  int32_t count = 0;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) count += static_cast<int32_t>(step.peers.size());
  }
  return count;
}

inline int32_t messages_sent(const std::vector<Program>& programs) {
  int32_t count = 0;
  for (const Program& program : programs) count += messages_sent(program);
  return count;
}

// A message to several peers counts once for each of them.
inline int32_t chunks_sent(const Program& program) {
  int32_t count = 0;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) {
      count += chunks_in(step.src) * static_cast<int32_t>(step.peers.size());
    }
  }
  return count;
}

inline int32_t chunks_received(const Program& program) {
  int32_t count = 0;
  for (const Step& step : program.steps) {
    const bool receives = step.kind == StepKind::recv || step.kind == StepKind::recv_reduce;
    if (receives) count += chunks_in(step.dst);
  }
  return count;
}

inline std::set<int32_t> targets_of(const Program& program) {
  std::set<int32_t> targets;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) targets.insert(step.peers.begin(), step.peers.end());
  }
  return targets;
}

// Computes the length of the longest chain of messages, each of which depends on the one before.
class Depth {
 public:
  Depth(const Algorithm& algorithm, Shape shape) {
    for (Program& program : emit_all(algorithm, shape)) {
      shape.rank = static_cast<int32_t>(plans_.size());
      depths_.emplace_back(program.steps.size(), -1);
      plans_.push_back(make_plan(algorithm.collective, shape, std::move(program)));
    }
  }

  int32_t longest() {
    int32_t depth = 0;
    for (size_t rank = 0; rank < plans_.size(); ++rank) {
      for (size_t step = 0; step < depths_[rank].size(); ++step) {
        depth = std::max(depth, of(static_cast<int32_t>(rank), static_cast<int32_t>(step)));
      }
    }
    return depth;
  }

 private:
  int32_t of(int32_t rank, int32_t step) {
    if (depths_[rank][step] >= 0) return depths_[rank][step];
    int32_t depth = 0;
    for (const int32_t earlier : plans_[rank].needs_of(step)) {
      depth = std::max(depth, of(rank, earlier));
    }
    const Step& s = plans_[rank].program.steps[step];
    if (s.kind == StepKind::recv || s.kind == StepKind::recv_reduce) {
      const int32_t peer = s.peers[0];
      const std::vector<int32_t>& mine = queue(rank, Plan::QueueKind::recv, peer);
      const auto k = std::ranges::find(mine, step) - mine.begin();
      depth = std::max(depth, 1 + of(peer, queue(peer, Plan::QueueKind::send, rank).at(k)));
    }
    return depths_[rank][step] = depth;
  }

  const std::vector<int32_t>& queue(int32_t rank, Plan::QueueKind kind, int32_t peer) const {
    for (const Plan::Queue& queue : plans_[rank].queues) {
      if (queue.kind == kind && queue.peer == peer) return queue.steps;
    }
    throw std::logic_error("a message without its other side");
  }

  std::vector<Plan> plans_;
  std::vector<std::vector<int32_t>> depths_;
};

inline int32_t depth_of(const Algorithm& algorithm, const Shape& shape) {
  return Depth(algorithm, shape).longest();
}

}  // namespace tutti
