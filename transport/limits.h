// Capacity of a communicator's paths.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti {

// The maximum payload of one message, in bytes: `bytes` for collectives, `p2p_bytes` for
// point-to-point calls.
struct MessageLimits {
  size_t bytes = 0;
  size_t p2p_bytes = 0;

  bool operator==(const MessageLimits&) const = default;
};

// The limits that all ranks of a communicator agree on, even if one of its transports could do
// more.
struct Limits {
  int lanes = 1;
  int slots = 1;
  MessageLimits near;  // between ranks that share memory
  MessageLimits far;   // between all other ranks
  // Minimum size of the pieces into which collective messages are split in order to use all lanes.
  // For smaller pieces the cost per message exceeds the cost of its bytes.
  size_t least_bytes = 16 << 10;

  // Returns the maximum payload of a collective message, which may go to near and to far ranks.
  size_t collective_bytes() const { return std::min(near.bytes, far.bytes); }

  bool operator==(const Limits&) const = default;
  static Limits of_one_path(int lanes, int slots, const MessageLimits& longest) {
    return {.lanes = lanes, .slots = slots, .near = longest, .far = longest};
  }
};

}  // namespace tutti
