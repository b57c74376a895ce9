// Ranks of the job that take part in nothing until the others ask for them. Who takes part, and who
// waits, is the same on all ranks at all times, because all of them see the same agreements: the
// spares too, who take part in each.
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
  // The last `spares` of `size` ranks wait at first.
  Spares(int size, int spares);

  // Those that take part, in ascending order; those that have died since they did are among them.
  const std::vector<int>& active() const { return active_; }
  bool is_active(int rank) const;

  struct Target {
    uint64_t epoch = 0;  // of the communicator that grows
    int ranks = 0;
  };
  // Collective among all ranks that are left: brings those that take part to `target.ranks`, as far
  // as there are spares, and returns the communicator of them all, the newcomers behind. A spare
  // calls it to wait, with any target; null: the job has ended, and it was not needed. Others may
  // die meanwhile. Throws what CommunicatorImpl::shrink() does.
  std::shared_ptr<CommunicatorImpl> grow(Engine& engine, const MakeTogether& make, Target target,
                                         std::chrono::nanoseconds timeout);
  // grow() has failed after its first question, and continues when it is called again.
  bool unfinished() const { return changes_.unfinished(); }
  // It will not be called again.
  void abandon() { changes_.abandon(); }

 private:
  // A rank's part of a communicator that grows; nothing on a spare that is not needed yet.
  struct Grown {
    std::shared_ptr<MadeTogether> communicator;
    bool made() const;
  };
  std::optional<Grown> make_of(Engine& engine, const MakeTogether& make, const Agreed& left);

  MemberChanges<Grown> changes_;  // among all ranks of the job that are left
  Target target_;                 // that the last agreement has named
  std::vector<int> active_;
  std::vector<int> waiting_;
};

}  // namespace tutti::internal
