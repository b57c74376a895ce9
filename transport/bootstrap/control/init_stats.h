// Statistics of the bootstrap.
#pragma once

#include <cstdint>

namespace tutti {

// Counts the messages of the bootstrap, handshakes included.
struct InitStats {
  struct Count {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    void add(uint64_t size, uint64_t times = 1) {
      messages += times;
      bytes += size * times;
    }
  };
  double seconds = 0;  // time until this rank was ready
  Count sent;          // messages that this rank has sent
  Count received;
  // Only rank 0 fills this in: the messages of all ranks together, without retries, and the maximum
  // number of first connections that rank 0 held at a time.
  Count all;
  int most_held = 0;
};

}  // namespace tutti
