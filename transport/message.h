// The header of every message between ranks; the same bytes in shared memory and on the wire
// (little-endian).
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace tutti {

// Bumped whenever MessageHeader, the framing, how calls are cut into messages, a control frame, the
// handshake or the table of ranks changes.
inline constexpr uint32_t kWireVersion = 14;

struct MessageHeader {
  uint32_t call = 0;   // number of the call on this communicator, from 1 (point-to-point: per pair)
  uint32_t slice = 0;  // slice of the call
  uint32_t step = 0;   // step of the sender's program, for people
  uint32_t bytes = 0;  // of payload
  // What the caller asked for: opaque here, compared by whoever runs the call.
  std::array<uint64_t, 2> signature = {};
};
static_assert(sizeof(MessageHeader) == 32 && std::is_trivially_copyable_v<MessageHeader>);

}  // namespace tutti
