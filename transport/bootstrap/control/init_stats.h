// What it took the ranks to find each other.
#pragma once

#include <cstdint>

namespace tutti {

// The messages are those of the bootstrap, handshakes included.
struct InitStats {
  struct Count {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    void add(uint64_t size, uint64_t times = 1) {
      messages += times;
      bytes += size * times;
    }
  };
  double seconds = 0;  // until this rank was ready
  Count sent;          // by this rank
  Count received;
  // Known to rank 0: what all ranks sent together, but for what had to be tried again, and how many
  // connections of ranks that had arrived it held at a time.
  Count all;
  int most_held = 0;
};

}  // namespace tutti
