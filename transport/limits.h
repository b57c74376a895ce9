// Capacity of a communicator's paths.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti {

// The longest payload of one message: of a collective, and of a point-to-point call.
struct MessageLimits {
  size_t bytes = 0;
  size_t p2p_bytes = 0;

  bool operator==(const MessageLimits&) const = default;
};

// The limits that all ranks of a communicator agree on, whatever a single transport could do beyond
// them.
struct Limits {
  int lanes = 1;
  int slots = 1;
  MessageLimits near;  // between ranks that share memory
  MessageLimits far;   // between all others
  // Collective messages are not split below this size to keep all lanes busy: then the cost per
  // message exceeds that of its bytes.
  size_t least_bytes = 16 << 10;

  // Applies to collectives, whose slices go to near and far ranks alike.
  size_t collective_bytes() const { return std::min(near.bytes, far.bytes); }

  bool operator==(const Limits&) const = default;
  static Limits of_one_path(int lanes, int slots, const MessageLimits& longest) {
    return {.lanes = lanes, .slots = slots, .near = longest, .far = longest};
  }
};

}  // namespace tutti
