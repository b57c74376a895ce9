// An observer's view of one rank.
#pragma once

#include <cstdint>
#include <string>

#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/membership/activity.h"

namespace tutti::bootstrap {

// State of a rank. `silent`: the rank is stopped, is behind a stopped rank, or is so busy that its
// control thread does not run.
enum class RankState : uint8_t { answers = 0, silent = 1, died = 2, left = 3 };

struct RankStatus {
  int rank = 0;
  int size = 0;  // number of ranks of the job
  RankState state = RankState::silent;
  std::string host;
  int64_t pid = 0;
  std::string address;  // address of its listener, to which an observer can connect
  uint16_t port = 0;
  Activity activity;  // valid if the state is `answers`
};

// Writes the activity. Limits the number of senders and of awaited ranks, so that it fits into a
// frame.
void put(FrameWriter& frame, const Activity& activity);
Activity get_activity(FrameReader& frame);

std::string status_frame(const RankStatus& status);
RankStatus get_status(FrameReader& frame);

}  // namespace tutti::bootstrap
