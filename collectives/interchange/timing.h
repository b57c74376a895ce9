// When the steps of an algorithm happen if every message takes one round and nothing else takes
// any: the picture that papers draw. Not a prediction of time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/plan.h"
#include "collectives/program/program.h"

namespace tutti {

struct TimedMessage {
  int32_t from = 0;
  int32_t to = 0;
  int32_t send_step = 0;  // of the sender
  int32_t recv_step = 0;  // of the receiver
  int32_t sent = 0;       // at the start of this round; it arrives at its end
  int32_t taken = 0;      // the round at the start of which the receiver has taken it in
};

struct Timing {
  int32_t rounds = 0;
  std::vector<TimedMessage> messages;       // in the order of their sending
  std::vector<std::vector<int32_t>> ended;  // by rank and step: rounds that have passed then
};

// Each step as early as its data, the messages and the order among those to one peer allow. A rank
// may send to several others in one round. `plans` are all ranks', and verified; throws
// Error(invalid_argument) where they make no progress.
Timing time_steps(std::span<const Plan> plans);

}  // namespace tutti
