// Assigns rounds to an algorithm's steps, as if every message took one round and everything else
// took no time, as in the figures of papers. The rounds do not predict the time.
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
  int32_t send_step = 0;  // index of the sender's step
  int32_t recv_step = 0;  // index of the receiver's step
  // The round at whose start the message is sent. The message arrives at the end of that round.
  int32_t sent = 0;
  int32_t taken = 0;  // round at whose start the receiver has consumed the message
};

struct Timing {
  int32_t rounds = 0;
  std::vector<TimedMessage> messages;  // in the order in which they are sent
  // ended[rank][step]: number of rounds that have passed when the step ends.
  std::vector<std::vector<int32_t>> ended;
};

// Schedules each step as early as its data, its messages and the order of messages to one peer
// allow. A rank may send to several others in one round. `plans` are all ranks' verified plans;
// throws Error(invalid_argument) if they make no progress.
Timing time_steps(std::span<const Plan> plans);

}  // namespace tutti
