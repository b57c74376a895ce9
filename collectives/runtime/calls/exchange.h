// Counts of the messages of a call that a rank has exchanged with a peer so far. Two ranks that
// wait for each other compare these counts.
#pragma once

#include <cstdint>

namespace tutti {

struct Exchange {
  int32_t peer = -1;
  int32_t lane = 0;
  uint32_t sent = 0;        // messages published
  uint32_t received = 0;    // messages taken
  bool has_unsent = false;  // some published messages have not left this rank yet
  bool to_receive = false;  // the rank waits for the next message of the peer
  bool to_send = false;     // the rank waits for room for a message, or for the end of a loan
};

}  // namespace tutti
