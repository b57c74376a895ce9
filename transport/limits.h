// How much the paths of a communicator hold.
#pragma once

#include <cstddef>

namespace tutti {

// What all ranks of a communicator agree on, whatever their own transports could do beyond it.
struct Limits {
  int lanes = 1;
  int slots = 1;
  size_t message_bytes = 0;
  size_t p2p_message_bytes = 0;
  // A collective's messages are not cut below this to keep all lanes busy: one costs more then than
  // its bytes.
  size_t least_bytes = 16 << 10;

  bool operator==(const Limits&) const = default;
};

}  // namespace tutti
