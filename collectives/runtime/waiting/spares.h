// Spare ranks of the job, which wait until the others request them. The sets of active and waiting
// ranks are the same on all ranks at all times, because all ranks, including the spares, take part
// in the same agreements.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/runtime/waiting/made_together.h"
#include "collectives/runtime/waiting/member_changes.h"

namespace tutti::internal {

class Engine;

class Spares {
 public:
  // The last `spares` of `size` ranks are waiting initially.
  Spares(int size, int spares);

  // The active ranks in ascending order, including those that have died since they became active.
  const std::vector<int>& active() const { return active_; }
  bool is_active(int rank) const;

  struct Target {
    uint64_t epoch = 0;  // epoch of the growing communicator
    int ranks = 0;
  };
  // Collective among all surviving ranks: raises the active ranks to `target.ranks` as far as
  // spares are available, and returns the communicator of all active ranks, the newcomers last. A
  // spare calls it (with any target) to wait; null means that the job has ended without needing it.
  // Ranks may die meanwhile. Throws the errors of CommunicatorImpl::shrink().
  std::shared_ptr<CommunicatorImpl> grow(Engine& engine, const MakeTogether& make, Target target,
                                         std::chrono::nanoseconds timeout);
  // True if grow() failed after its first question; it continues when called again.
  bool unfinished() const { return changes_.unfinished(); }
  // Call it when grow() will not be called again.
  void abandon() { changes_.abandon(); }

 private:
  // A rank's part of the grown communicator; empty on a spare that is not needed yet.
  struct Grown {
    std::shared_ptr<MadeTogether> communicator;
    bool made() const;
  };
  std::optional<Grown> make_of(Engine& engine, const MakeTogether& make, const Agreed& left);

  MemberChanges<Grown> changes_;  // among all surviving ranks of the job
  Target target_;                 // decided by the last agreement
  std::vector<int> active_;
  std::vector<int> waiting_;
};

}  // namespace tutti::internal
