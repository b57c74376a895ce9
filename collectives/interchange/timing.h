// Times an algorithm's steps as if every message took one round and everything else none: the
// picture that papers draw. Not a prediction of time.
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
  int32_t send_step = 0;  // step number at the sender
  int32_t recv_step = 0;  // step number at the receiver
  int32_t sent = 0;       // round at whose start it is sent; it arrives at its end
  int32_t taken = 0;      // round at whose start the receiver has consumed it
};

struct Timing {
  int32_t rounds = 0;
  std::vector<TimedMessage> messages;       // in the order of their sending
  std::vector<std::vector<int32_t>> ended;  // by rank and step: rounds passed at its end
};

// Schedules each step as early as its data, its messages and the order of messages to one peer
// allow. A rank may send to several others in one round. `plans` are all ranks' verified plans;
// throws Error(invalid_argument) if they make no progress.
Timing time_steps(std::span<const Plan> plans);

}  // namespace tutti
