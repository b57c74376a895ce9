// In what order the threads of a block do the steps of a program, and which of them at once.
//
// The queues of a plan move independently of each other (program/queue_walk.h); a block of threads
// does one thing after the other. So the plans of all ranks are walked here once, with as much room
// for messages as there will be, and the order in which the walk happens to begin each rank's steps
// is kept. It is safe whatever the timing: ranks that do their steps in a fixed order and wait for
// messages and for room are a network with one outcome, and this order has been seen to end.
//
// A receive whose result is sent on at once becomes one action with that send, so that the result
// is not read again. The actions are walked once more for it, since such a receive waits for room,
// too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/plan.h"

namespace tutti::gpu {

struct Action {
  int32_t step = 0;
  int32_t sends_to = -1;     // of sends: one of its peers
  int32_t forwards = -1;     // of receives: the step that sends the result on,
  int32_t forwards_to = -1;  // to this peer
  // Where messages are lent (lending.h):
  int32_t lend = -1;             // of what it sends: its number among those that the rank lends
  int32_t lender_step = -1;      // of receives: the lender's step, where what it gets lies,
  int32_t lender = -1;           // and the lender
  std::vector<int32_t> awaited;  // what the rank lent, and where the action writes
  // Where steps are joined (joint_steps.h):
  bool from_all = false;   // adds up all ranks' inputs, at the place of what the lender lends
  bool to_all = false;     // writes all ranks' outputs, and sends to all others that this is so
  bool by_switch = false;  // may leave it to the switch to add: nobody else adds up the same
  bool given = false;      // a receive of what the sender has written to its place

  bool operator==(const Action&) const = default;

  // The peer that it sends to, or -1.
  int32_t sends(const Step& step) const {
    return step.kind == StepKind::send ? sends_to : forwards_to;
  }
};

using Actions = std::vector<Action>;  // one rank's, in order

// `plans[r]`: rank r's, in place. `room`: messages that a connection holds. All ranks' actions.
std::vector<Actions> schedule(std::span<const Plan> plans, uint32_t room);

// Whether all ranks come to their end in this order.
bool ends(std::span<const Plan> plans, std::span<const Actions> actions, uint32_t room);

}  // namespace tutti::gpu
