// The surviving members of a communicator agree on who they are, and continue in a communicator of
// their own. All of it goes over the control channel, since the data paths of a communicator that
// lost a member are aborted.
//
// Threads: any; one at a time is at it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/runtime/waiting/engine.h"
#include "collectives/runtime/waiting/made_together.h"
#include "collectives/runtime/waiting/member_changes.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::internal {

// The result of Control::agree(); meanwhile this rank's calls on all communicators make progress,
// which peers may wait for. Throws Error(connection_lost) if the members are without this rank.
Agreed agree_over_control(Engine& engine, uint64_t communicator, uint32_t number,
                          const Contribution& contribution, std::chrono::nanoseconds timeout);
// Throws Error(connection_lost) if `living` is without this rank.
void require_in(const std::vector<int>& living, const Control& control);

class Survivors {
 public:
  // `members`: by rank of communicator `id`, the rank in the job; they outlive this, as the engine
  // does. `timeout`: of an agreement; 0: none.
  Survivors(const std::shared_ptr<Engine>& engine, MakeTogether make, uint64_t id,
            const std::vector<int>& members, uint64_t epoch, std::chrono::nanoseconds timeout)
      : engine_(engine),
        make_(std::move(make)),
        id_(id),
        members_(members),
        epoch_(epoch),
        timeout_(timeout),
        changes_(members) {}

  // Collective among the members that are left. Block; throw Error(timeout), or
  // Error(connection_lost) where the others continue without this rank.

  // The members that are left, and the flags that all of them have given.
  Agreed agree(uint64_t flags);
  // The communicator of the members that are left.
  std::shared_ptr<CommunicatorImpl> shrink();
  // The communicator of these and of `count` spares.
  std::shared_ptr<CommunicatorImpl> grow(int count);

  // The last grow() failed with the engine's part of it unfinished.
  bool grow_failed() const { return grow_failed_; }

 private:
  MemberChanges<MadeTogether>::Agree over_control() const;
  MadeTogether make_of(const Agreed& left) const;

  const std::shared_ptr<Engine>& engine_;
  const MakeTogether make_;
  const uint64_t id_;
  const std::vector<int>& members_;
  const uint64_t epoch_;
  const std::chrono::nanoseconds timeout_;
  std::mutex mutex_;
  MemberChanges<MadeTogether> changes_;  // guarded by it
  bool grow_failed_ = false;
};

}  // namespace tutti::internal
