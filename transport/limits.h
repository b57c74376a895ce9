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

  bool operator==(const Limits&) const = default;
};

}  // namespace tutti
