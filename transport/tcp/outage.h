// Detects a connection whose network is down: sent bytes are not confirmed. The operating system
// takes a quarter of an hour to report this, and if other networks between the two ranks still
// work, no control link breaks either.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti {

class Outage {
 public:
  // True if bytes are in flight that the reader's system would confirm at once. Bytes that wait for
  // a slow reader's window do not count.
  static bool under_way(int socket);
  // To be called now and then. Returns an error text if no byte in flight has been confirmed for
  // `longest`, otherwise an empty text. A slow reader still confirms.
  std::string look(int socket, int64_t now_ns, std::chrono::milliseconds longest);

 private:
  int64_t since_ns_ = 0;  // time of the first unconfirmed observation; 0: none
};

}  // namespace tutti
