// What a rank asked for, in the 16 bytes that ride in the header of every message. Two ranks whose
// signatures differ made calls that do not fit together.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/reduce_op.h"
#include "collectives/program/program.h"

namespace tutti {

struct Signature {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  bool uneven = false;     // a v-variant
  bool own = false;        // a message of the library's own; messages are never uneven
  uint64_t algorithm = 0;  // Algorithm::id; of a message Request::tail
  // Of messages the tag; where there is no root but there are uneven blocks, their hash. Else in
  // the bits from kRootBits on Request::tail.
  int32_t root = 0;
  uint64_t count = 0;
  bool operator==(const Signature&) const = default;
};

// Elements that a count has room for: more than any address space has.
inline constexpr uint64_t kMostElements = (uint64_t{1} << 48) - 1;

// More than any job has ranks.
inline constexpr int kRootBits = 21;

std::array<uint64_t, 2> encode(const Signature& signature);
// The words with another count.
std::array<uint64_t, 2> with_count(std::array<uint64_t, 2> words, uint64_t count);
// Values out of range (a garbled header) come back as they are; to_string() copes.
Signature decode(const std::array<uint64_t, 2>& words);
// "all_reduce of 1003 f32, sum, by ring"
std::string to_string(const Signature& signature);

}  // namespace tutti
