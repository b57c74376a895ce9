// Detects that the network of a connection is down: bytes that were sent are not confirmed. The
// operating system reports this only after a quarter of an hour. If other networks between the two
// ranks still work, no control link breaks either.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti {

class Outage {
 public:
  // Returns true if bytes are in flight that the reader's system would confirm at once if they
  // arrived. Bytes that wait for a slow reader's window do not count.
  static bool in_flight(int socket);
  // Checks the socket; call this function from time to time. Returns an error text if no byte in
  // flight has been confirmed for `longest`, otherwise an empty text. Bytes to a slow reader are
  // confirmed too.
  std::string look(int socket, int64_t now_ns, std::chrono::milliseconds longest);

 private:
  int64_t since_ns_ = 0;  // time of the first unconfirmed observation; 0: none
};

}  // namespace tutti
