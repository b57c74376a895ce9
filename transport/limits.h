// How much the paths of a communicator hold.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti {

// The longest payload of one message: of a collective's, and of a point-to-point call's.
struct MessageLimits {
  size_t bytes = 0;
  size_t p2p_bytes = 0;

  bool operator==(const MessageLimits&) const = default;
};

// What all ranks of a communicator agree on, whatever their own transports could do beyond it.
struct Limits {
  int lanes = 1;
  int slots = 1;
  MessageLimits near;  // between ranks that share memory
  MessageLimits far;   // between all others
  // A collective's messages are not cut below this to keep all lanes busy: one costs more then than
  // its bytes.
  size_t least_bytes = 16 << 10;

  // Of collectives, whose slices go to near and far ranks alike.
  size_t collective_bytes() const { return std::min(near.bytes, far.bytes); }

  bool operator==(const Limits&) const = default;
  static Limits of_one_path(int lanes, int slots, const MessageLimits& longest) {
    return {.lanes = lanes, .slots = slots, .near = longest, .far = longest};
  }
};

}  // namespace tutti
