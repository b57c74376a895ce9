// The header of every message between ranks, identical in shared memory and on the wire
// (little-endian).
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace tutti {

// Must be increased whenever MessageHeader, the framing, the splitting of calls into messages, a
// control frame, the handshake or the table of ranks changes.
inline constexpr uint32_t kWireVersion = 14;

struct MessageHeader {
  // Index of the call, from 1: among the communicator's collectives, or among the point-to-point
  // calls of a pair of ranks.
  uint32_t call = 0;
  uint32_t slice = 0;  // index of the slice in the call
  uint32_t step = 0;   // step of the sender's program, for diagnostics
  uint32_t bytes = 0;  // payload size in bytes
  // Describes the caller's request. The transport does not interpret it; the collective layer
  // compares it.
  std::array<uint64_t, 2> signature = {};
};
static_assert(sizeof(MessageHeader) == 32 && std::is_trivially_copyable_v<MessageHeader>);

}  // namespace tutti
