// The surviving members of a communicator agree on the set of survivors and continue in a new
// communicator. All of this uses the control channel, because the data paths of a communicator that
// lost a member are aborted.
//
// Threads: any thread may call. agree() and shrink() are serialised; grow() is not.
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

// Runs Control::agree() and returns its result. Meanwhile this rank's calls on all communicators
// make progress, because peers may wait for them. Throws Error(connection_lost) if the decision
// excludes this rank.
Agreed agree_over_control(Engine& engine, uint64_t communicator, uint32_t number,
                          const Contribution& contribution, std::chrono::nanoseconds timeout);
// Throws Error(connection_lost) if `living` does not contain this rank.
void require_in(const std::vector<int>& living, const Control& control);

class Survivors {
 public:
  // Prepares the survivors' calls. `members[r]`: the rank in the job of rank r of communicator
  // `id`. `engine`, the pointer itself, and `members` must outlive this object. `timeout`: time for
  // an agreement; 0: no limit.
  Survivors(const std::shared_ptr<Engine>& engine, MakeTogether make, uint64_t id,
            const std::vector<int>& members, uint64_t epoch, std::chrono::nanoseconds timeout)
      : engine_(engine),
        make_(std::move(make)),
        id_(id),
        members_(members),
        epoch_(epoch),
        timeout_(timeout),
        changes_(members) {}

  // The following calls are collective among the surviving members and block. They throw
  // Error(timeout), or Error(connection_lost) if the other members continue without this rank.

  // Returns the surviving members and the bitwise AND of their flags.
  Agreed agree(uint64_t flags);
  // Returns the communicator of the surviving members.
  std::shared_ptr<CommunicatorImpl> shrink();
  // Returns the communicator of the surviving members and of spares. Its size is the size of this
  // communicator (including dead members) plus `count`, or less if too few spares are left. Throws
  // Error(invalid_argument) if an active rank of the job is not a member.
  std::shared_ptr<CommunicatorImpl> grow(int count);

  // Returns true if the last grow() failed and the engine's Spares have not completed it.
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
  MemberChanges<MadeTogether> changes_;  // guarded by mutex_
  bool grow_failed_ = false;
};

}  // namespace tutti::internal
