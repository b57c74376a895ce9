// A summary of a call in the 16 bytes that the header of every message carries. If the signatures
// of two ranks differ, their calls do not match.
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
  bool uneven = false;     // true: a v-variant
  bool own = false;        // true: a library-internal message; messages are never uneven
  uint64_t algorithm = 0;  // Algorithm::id; for a message Request::tail
  // For a message: the tag. For all_gatherv and reduce_scatterv: a hash of the blocks. For all
  // other collectives: the root (0 if there is none) in the lowest kRootBits bits and, except in
  // v-variants, Request::tail in the bits above them.
  int32_t root = 0;
  uint64_t count = 0;
  bool operator==(const Signature&) const = default;
};

// Largest `count` that can be encoded. No buffer in a 48-bit address space has more elements.
inline constexpr uint64_t kMostElements = (uint64_t{1} << 48) - 1;

// Number of bits for a root, which is enough for the ranks of any job.
inline constexpr int kRootBits = 21;

std::array<uint64_t, 2> encode(const Signature& signature);
// Returns the words of a signature, with `count` in place of the signature's count.
std::array<uint64_t, 2> with_count(std::array<uint64_t, 2> words, uint64_t count);
// Decodes the words of a header. Values out of range (from a garbled header) are decoded as they
// are; to_string() accepts them.
Signature decode(const std::array<uint64_t, 2>& words);
// Formats as "all_reduce of 1003 f32, sum, by ring".
std::string to_string(const Signature& signature);

}  // namespace tutti
