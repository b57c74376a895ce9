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
    for (const Plan& plan : plans) sends_.emplace_back(plan.program.steps.size());
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
  // The send that `from` offers to `to`, or -1.
  int32_t& offered(int32_t from, int32_t to) { return offered_[from * plans_.size() + to]; }

  Attempt offer(int32_t rank, int32_t number, std::span<const int32_t> peers) {
    const auto is_free = [&](int32_t peer) { return offered(rank, peer) < 0; };
    if (!std::ranges::all_of(peers, is_free)) return Attempt::waits;
    for (const int32_t peer : peers) {
      offered(rank, peer) = number;
      walk_.wake(peer);
    }
    sends_[rank][number] = {.away = peers.size(), .left = peers.size()};
    return Attempt::begun;
  }

  Attempt take(int32_t from, int32_t to) {
    const int32_t number = offered(from, to);
    if (number < 0) return Attempt::waits;
    Send& send = sends_[from][number];
    if (std::ranges::find(send.ready, to) == send.ready.end()) {
      send.ready.push_back(to);
      if (--send.away == 0) {
        for (const int32_t reader : send.ready) walk_.wake(reader);
      }
    }
    if (send.away > 0) return Attempt::waits;
    offered(from, to) = -1;
    walk_.wake(from);
    if (--send.left == 0) walk_.finish(from, number);
    return Attempt::finished;
  }

  std::span<const Plan> plans_;
  JointWalk walk_;
  std::vector<int32_t> offered_;
  struct Send {
    std::vector<int32_t> ready;  // readers that would take it
    size_t away = 0;             // and so many more
    size_t left = 0;             // that have not taken it
  };
  std::vector<std::vector<Send>> sends_;  // by rank, then by step: those that have begun
};

}  // namespace

bool ends_without_buffers(std::span<const Plan> plans) { return Run(plans).ends(); }

}  // namespace tutti
