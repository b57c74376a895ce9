#include "collectives/rendezvous.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace tutti {

namespace {

class Run {
 public:
  explicit Run(std::span<const Plan> plans)
      : plans_(plans), offered_(plans.size() * plans.size(), -1) {
    for (const Plan& plan : plans) {
      ranks_.push_back({.cursors = std::vector<size_t>(plan.queues.size(), 0),
                        .readers_left = std::vector<size_t>(plan.program.steps.size(), 0),
                        .done = std::vector<bool>(plan.program.steps.size(), false)});
    }
  }

  bool to_the_end() {
    for (size_t rank = 0; rank < plans_.size(); ++rank) wake(rank);
    while (!awake_.empty()) {
      const size_t rank = awake_.front();
      awake_.pop_front();
      ranks_[rank].awake = false;
      while (move(rank)) {
      }
    }
    for (const Rank& rank : ranks_) {
      for (const bool done : rank.done) {
        if (!done) return false;
      }
    }
    return true;
  }

 private:
  struct Rank {
    std::vector<size_t> cursors;       // of queues
    std::vector<size_t> readers_left;  // of sends that are under way
    std::vector<bool> done;
    bool awake = false;
  };

  // The send that `from` holds out to `to`, or -1.
  int32_t& offered(size_t from, size_t to) { return offered_[from * plans_.size() + to]; }

  void wake(size_t rank) {
    if (!std::exchange(ranks_[rank].awake, true)) awake_.push_back(rank);
  }

  bool move(size_t rank) {
    bool moved = false;
    for (size_t queue = 0; queue < plans_[rank].queues.size(); ++queue) {
      moved |= advance(rank, queue);
    }
    return moved;
  }

  bool at_head(size_t rank, int32_t queue, int32_t step) const {
    const auto& steps = plans_[rank].queues[static_cast<size_t>(queue)].steps;
    const size_t cursor = ranks_[rank].cursors[static_cast<size_t>(queue)];
    return cursor < steps.size() && steps[cursor] == step;
  }

  bool advance(size_t rank, size_t queue) {
    const Plan& plan = plans_[rank];
    Rank& self = ranks_[rank];
    if (self.cursors[queue] == plan.queues[queue].steps.size()) return false;
    const int32_t number = plan.queues[queue].steps[self.cursors[queue]];
    const Step& step = plan.program.steps[static_cast<size_t>(number)];
    for (const int32_t need : plan.needs_of(number)) {
      if (!self.done[static_cast<size_t>(need)]) return false;
    }
    if (step.kind == StepKind::send) return hold_out(rank, number, step);
    if (!step.peers.empty()) {
      const auto from = static_cast<size_t>(step.peers[0]);
      if (offered(from, rank) < 0) return false;
      taken(from, std::exchange(offered(from, rank), -1));
    }
    self.done[static_cast<size_t>(number)] = true;
    ++self.cursors[queue];
    return true;
  }

  bool hold_out(size_t rank, int32_t number, const Step& step) {
    Rank& self = ranks_[rank];
    const std::vector<int32_t>& queues = plans_[rank].send_queues[static_cast<size_t>(number)];
    for (const int32_t queue : queues) {
      if (!at_head(rank, queue, number)) return false;
    }
    for (const int32_t peer : step.peers) {
      if (offered(rank, static_cast<size_t>(peer)) >= 0) return false;
    }
    for (const int32_t peer : step.peers) {
      offered(rank, static_cast<size_t>(peer)) = number;
      wake(static_cast<size_t>(peer));
    }
    self.readers_left[static_cast<size_t>(number)] = step.peers.size();
    for (size_t queue = 0; queue < self.cursors.size(); ++queue) {
      if (plans_[rank].queues[queue].kind == Plan::QueueKind::send &&
          at_head(rank, static_cast<int32_t>(queue), number)) {
        ++self.cursors[queue];
      }
    }
    return true;
  }

  void taken(size_t rank, int32_t send) {
    Rank& sender = ranks_[rank];
    if (--sender.readers_left[static_cast<size_t>(send)] == 0) {
      sender.done[static_cast<size_t>(send)] = true;
    }
    wake(rank);
  }

  std::span<const Plan> plans_;
  std::vector<int32_t> offered_;
  std::vector<Rank> ranks_;
  std::deque<size_t> awake_;
};

}  // namespace

bool ends_without_buffers(std::span<const Plan> plans) { return Run(plans).to_the_end(); }

}  // namespace tutti
