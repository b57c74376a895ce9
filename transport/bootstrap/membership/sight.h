// What whoever watches a job sees of one rank.
#pragma once

#include <cstdint>
#include <string>

#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/membership/activity.h"

namespace tutti::bootstrap {

// Silent: it is stopped, or behind one that is, or so busy that its control thread does not run.
enum class RankState : uint8_t { answers = 0, silent = 1, died = 2, left = 3 };

struct RankSight {
  int rank = 0;
  int size = 0;  // of the job
  RankState state = RankState::silent;
  std::string host;
  int64_t pid = 0;
  std::string address;  // of its listener: another one to watch from
  uint16_t port = 0;
  Activity activity;  // of one that answers
};

// At most some hundred senders and whom it waits for: a frame has room for no more.
void put(FrameWriter& frame, const Activity& activity);
Activity get_activity(FrameReader& frame);

std::string sight_frame(const RankSight& sight);
RankSight get_sight(FrameReader& frame);

}  // namespace tutti::bootstrap
