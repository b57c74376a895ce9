// A connection whose network has gone away: what is sent on it is confirmed by nobody. The
// operating system takes a quarter of an hour to say so, and where other networks between the same
// two ranks still work, no control link breaks either.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti {

class Outage {
 public:
  // Whether something is on its way that a reader's system would confirm at once. What waits for a
  // slow reader to make room is not.
  static bool under_way(int socket);
  // Asked now and then. Empty, or what is wrong with the connection for good: for `longest` nothing
  // of what is under way has been confirmed. A reader that is merely slow confirms.
  std::string look(int socket, int64_t now_ns, std::chrono::milliseconds longest);

 private:
  int64_t since_ns_ = 0;  // when something unconfirmed was seen first; 0: nothing is
};

}  // namespace tutti
