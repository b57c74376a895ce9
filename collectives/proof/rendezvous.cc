#include "collectives/proof/rendezvous.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/program/joint_walk.h"

namespace tutti {

namespace {

class Run {
 public:
  explicit Run(std::span<const Plan> plans)
      : plans_(plans), walk_(plans), offered_(plans.size() * plans.size(), -1) {
    for (const Plan& plan : plans) readers_left_.emplace_back(plan.program.steps.size(), 0);
  }

  bool ends() {
    walk_.run([this](int32_t rank, int32_t number) {
      const Step& step = plans_[rank].program.steps[number];
      if (step.kind == StepKind::send) return offer(rank, number, step.peers);
      return step.peers.empty() ? Attempt::finished : take(step.peers[0], rank);
    });
    return walk_.ended();
  }

 private:
  // Returns the send that `from` offers to `to`, or -1.
  int32_t& offered(int32_t from, int32_t to) { return offered_[from * plans_.size() + to]; }

  Attempt offer(int32_t rank, int32_t number, std::span<const int32_t> peers) {
    const auto is_free = [&](int32_t peer) { return offered(rank, peer) < 0; };
    if (!std::ranges::all_of(peers, is_free)) return Attempt::waits;
    for (const int32_t peer : peers) {
      offered(rank, peer) = number;
      walk_.wake(peer);
    }
    readers_left_[rank][number] = peers.size();
    return Attempt::begun;
  }

  Attempt take(int32_t from, int32_t to) {
    const int32_t send = std::exchange(offered(from, to), -1);
    if (send < 0) return Attempt::waits;
    walk_.wake(from);
    if (--readers_left_[from][send] == 0) walk_.finish(from, send);
    return Attempt::finished;
  }

  std::span<const Plan> plans_;
  JointWalk walk_;
  std::vector<int32_t> offered_;
  // By rank and step: number of readers that a begun send waits for.
  std::vector<std::vector<size_t>> readers_left_;
};

}  // namespace

bool ends_without_buffers(std::span<const Plan> plans) { return Run(plans).ends(); }

}  // namespace tutti
