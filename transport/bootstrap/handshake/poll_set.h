// One poll() over the descriptors of several components, each with its own handler.
//
// The set is refilled for each turn: every component adds what it waits for. Handlers may close any
// descriptor and change any component; a handler whose object is gone does nothing.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <vector>

#include "base/deadline.h"

namespace tutti::bootstrap {

class PollSet {
 public:
  using Handler = std::function<void(short revents)>;

  void add(int fd, short events, Handler handler);
  // Limits the wait of the next run() to `when`. The earliest of several calls applies.
  void wake_at(Clock::time_point when);
  // Waits, calls the handlers of ready descriptors, and empties the set.
  void run();

 private:
  std::vector<pollfd> entries_;
  std::vector<Handler> handlers_;
  Clock::time_point wake_at_ = Clock::time_point::max();
};

}  // namespace tutti::bootstrap
