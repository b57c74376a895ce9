// Connections that their sender has finished while their last bytes may still be in flight. If the
// process ended and its host or network shut down, those bytes would be lost.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "base/fd.h"

namespace tutti {

class LastBytes {
 public:
  // Takes connected sockets that were shut down for sending. Those whose bytes have all arrived are
  // closed, now or on a later call. `patience`: see wait(); 0: no limit. Thread-safe.
  void add(std::vector<Fd> sockets, std::chrono::nanoseconds patience);
  // Blocks until the readers' systems have received all bytes; gives up once no byte arrives for
  // the time `patience` that was given to add().
  void wait();

 private:
  // Closes sockets whose bytes have arrived or that have broken. Returns the number of bytes in
  // flight.
  size_t look();

  std::mutex mutex_;
  std::vector<Fd> sockets_;
  std::chrono::nanoseconds time_limit_{0};
};

}  // namespace tutti
