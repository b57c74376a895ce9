// Computes the order in which the threads of a block run the steps of a program, and fuses steps.
//
// The queues of a plan progress independently (program/queue_walk.h), but a block of threads runs
// one step after another. So the plans of all ranks are walked here once, with the same room for
// messages as at run time. The order in which the walk begins each rank's steps is recorded. This
// order is safe for any timing. Ranks that run steps in a fixed order and wait only for messages
// and for room form a deterministic network with a single outcome, and the walk has shown that this
// network terminates.
//
// If a received result is forwarded at once, the receive is fused with the send, so that the result
// is not read again. The fused order is walked once more, because such a receive also waits for
// room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/plan.h"

namespace tutti::gpu {

struct Action {
  int32_t step = 0;
  int32_t sends_to = -1;     // send: the peer that receives the message
  int32_t forwards = -1;     // receive: step that forwards its result; -1: none
  int32_t forwards_to = -1;  // receive: peer that the step `forwards` sends to
  // Used if messages are lent (lending.h):
  int32_t lend = -1;             // index of the loan that the action sends; -1: none
  int32_t lender_step = -1;      // receive: the lender's step, which locates the data
  int32_t lender = -1;           // receive: the lender
  std::vector<int32_t> awaited;  // loans of this rank in memory that the action overwrites
  // Used if steps are joined (joint_steps.h):
  bool from_all = false;   // combines all ranks' inputs, at the location of the lender's loan
  bool to_all = false;     // writes all ranks' outputs, and notifies all other ranks
  bool by_switch = false;  // the switch may sum, because no other rank computes this sum
  bool given = false;      // receive: the sender has written the data in place

  bool operator==(const Action&) const = default;

  // Returns the peer that the action sends to, or -1.
  int32_t sends(const Step& step) const {
    return step.kind == StepKind::send ? sends_to : forwards_to;
  }
};

using Actions = std::vector<Action>;  // the actions of one rank, in order

// Returns all ranks' actions. `plans[r]` is rank r's plan, made for in-place calls. `room`:
// capacity of a connection in messages.
std::vector<Actions> schedule(std::span<const Plan> plans, uint32_t room);

// Returns true if all ranks terminate when each runs its `actions` in order. `room`: capacity of a
// connection in messages.
bool ends(std::span<const Plan> plans, std::span<const Actions> actions, uint32_t room);

}  // namespace tutti::gpu
