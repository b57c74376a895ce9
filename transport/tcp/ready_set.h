// Tracks which of many TCP connections are readable: a single epoll_wait covers all of them,
// instead of a recv() per connection that returns EAGAIN.
#pragma once

#include <cstdint>

#include "base/fd.h"

namespace tutti {

class ReadySet {
 public:
  // The state of one connection. It must not be moved while it is watched.
  struct Entry {
    bool watched = false;
    bool idle = false;   // set by a receiver that has received everything available
    uint32_t round = 0;  // round of the last query
  };

  // Starts to watch a connection. It does nothing if descriptors are exhausted.
  void watch(int socket, Entry& entry);
  // Stops watching. It must be called for an ended connection, which would stay ready forever.
  void forget(int socket, Entry& entry);
  // Returns true while nothing has arrived since the connection became idle. Polls all connections
  // when one is queried for the second time since the last poll.
  bool is_idle(Entry& entry);

 private:
  void ask();

  Fd epoll_;
  uint32_t round_ = 0;
};

}  // namespace tutti
