// A threadblock during execution: its steps split into actions, and its position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "collectives/interchange/msccl.h"
#include "collectives/interchange/placement.h"
#include "collectives/program/program.h"

namespace tutti {

// Unit of execution, which one step of a program can express: half of a fused step, or all of any
// other step.
struct Action {
  StepKind kind = StepKind::copy;
  bool is_nop = false;
  MscclRange src;
  MscclRange src2;
  MscclRange dst;
  int32_t step = 0;  // index of the step in the threadblock
};

inline bool receives(const Action& action) { return receives(action.kind); }

struct Threadblock {
  const MscclThreadblock* source = nullptr;
  int32_t gpu = 0;
  std::vector<Action> actions;
  size_t next = 0;
  int32_t receiver = -1;           // threadblock that receives what this one sends
  int32_t sender = -1;             // threadblock that sends what this one receives
  std::vector<int32_t> followers;  // threadblocks with steps that wait for this one
  bool awake = false;
  // Locations of messages that were received before their turn.
  std::deque<MscclRange> early;

  const Action* head() const { return next < actions.size() ? &actions[next] : nullptr; }
  // Returns the number of completed steps.
  int32_t done() const {
    return next < actions.size() ? actions[next].step : static_cast<int32_t>(source->steps.size());
  }
};

// Splits the threadblock's steps into actions. `passing`: number of cells in use for values inside
// fused steps, which this function increases.
std::vector<Action> actions_of(const MscclThreadblock& threadblock, int32_t& passing);
MscclRange passing_range(int32_t& passing, int32_t count);

}  // namespace tutti
