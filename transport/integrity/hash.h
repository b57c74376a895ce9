// XXH3 with 64 bits (Collet, https://xxhash.com), with AVX2 where there is that: finds accidents,
// not forgery. TCP's own 16-bit checksum is a sum, so it does not change when words change places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/reduce.h"

namespace tutti {

// The hash of `bytes`, the same on all processors; a change goes unnoticed once in 2^64. `seed`
// tells apart equal bytes that stand for different things.
uint64_t integrity_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

// The same, computed with that instruction set, which this processor has.
uint64_t integrity_hash_by(InstructionSet set, std::span<const std::byte> bytes, uint64_t seed);

}  // namespace tutti
