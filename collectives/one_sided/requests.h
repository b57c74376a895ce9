// Wire format of one-sided requests: a message contains one or more of them.
//
//   | header | up to kSegment bytes, padded to 8 | header | ...
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::one_sided {

inline constexpr uint64_t kSegment = 32 << 10;
// Length of the longest message, in bytes. It has one request of kSegment bytes, or many short
// ones.
inline constexpr uint64_t kMessage = kSegment + (4 << 10);

enum class Kind : uint8_t {
  put,         // payload in the message
  put_data,    // payload in the source's next message with kDataTag; this request ends its message
  get,         // answered with the data
  accumulate,  // payload in the message
  swap,        // answered with the old value
  signal,
  flush,   // answered when all earlier requests have been served
  arrive,  // arrival at a fence
};

struct Header {
  Kind kind = Kind::flush;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  uint8_t unused = 0;
  int32_t reply_tag = 0;
  uint64_t offset = 0;  // in the part; signal: the slot
  uint64_t bytes = 0;   // length of the data; signal: the count
  uint64_t expected = 0;
  uint64_t desired = 0;
};
static_assert(sizeof(Header) == 40);

// Tags of messages. Answers use all other tags in turn.
inline constexpr int kRequestTag = 0;
inline constexpr int kDataTag = 1;
inline constexpr int kFirstAnswerTag = 2;

}  // namespace tutti::one_sided
