// Spare ranks of the job, which wait until the other ranks need them. The sets of active and
// waiting ranks are the same on all ranks at all times, because all ranks, including the spares,
// take part in the same agreements.
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
  // Starts with the last `spares` of `size` ranks waiting.
  Spares(int size, int spares);

  // Returns the active ranks in ascending order, including those that have died since they became
  // active.
  const std::vector<int>& active() const { return active_; }
  bool is_active(int rank) const;

  struct Target {
    uint64_t epoch = 0;  // epoch of the growing communicator
    int ranks = 0;
  };
  // Raises the number of active ranks to `target.ranks` as far as spares are available, and returns
  // the communicator of all active ranks, the newcomers last. Collective among all surviving ranks.
  // Some of them may die meanwhile. A spare calls grow() (with any target) to wait, and gets null
  // if the job has ended without needing the spare. Throws the errors of Survivors::shrink().
  std::shared_ptr<CommunicatorImpl> grow(Engine& engine, const MakeTogether& make, Target target,
                                         std::chrono::nanoseconds timeout);
  // Returns true if grow() failed between its two agreements (member_changes.h). Calling grow()
  // again completes it.
  bool unfinished() const { return changes_.unfinished(); }
  // Declares that grow() will not be called again.
  void abandon() { changes_.abandon(); }

 private:
  // A rank's part of the grown communicator; empty on a spare that is not needed yet.
  struct Grown {
    std::shared_ptr<MadeTogether> communicator;
    bool made() const;
  };
  std::optional<Grown> make_of(Engine& engine, const MakeTogether& make, const Agreed& left);

  MemberChanges<Grown> changes_;  // agreements among all surviving ranks of the job
  Target target_;                 // the target that this rank passed, or that the last change chose
  std::vector<int> active_;
  std::vector<int> waiting_;
};

}  // namespace tutti::internal
