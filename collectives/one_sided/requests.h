// Requests of one-sided calls, as they travel: a message has one or several of them.
//
//   | header | up to kSegment bytes, filled up to 8 | header | ...
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::one_sided {

inline constexpr uint64_t kSegment = 32 << 10;
// The longest message: it has room for one request of kSegment bytes, or for many short ones.
inline constexpr uint64_t kMessage = kSegment + (4 << 10);

enum class Kind : uint8_t {
  put,         // the bytes follow in the message
  put_data,    // they are the source's next message with the tag kDataTag; the last in its message
  get,         // answered with the bytes
  accumulate,  // the bytes follow
  swap,        // answered with what was there
  signal,
  flush,   // answered when it is served
  arrive,  // at a fence
};

struct Header {
  Kind kind = Kind::flush;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  uint8_t unused = 0;
  int32_t reply_tag = 0;
  uint64_t offset = 0;  // of a signal: its slot
  uint64_t bytes = 0;   // of a signal: what it adds
  uint64_t expected = 0;
  uint64_t desired = 0;
};
static_assert(sizeof(Header) == 40);

// On the communicator of requests.
inline constexpr int kRequestTag = 0;
inline constexpr int kDataTag = 1;

}  // namespace tutti::one_sided
