// XXH3 with 64 bits (Collet, https://xxhash.com), with AVX2 if available: detects accidents, not
// forgery. TCP's own 16-bit checksum is a sum, so it misses exchanged words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/reduce.h"

namespace tutti {

// Returns the hash of `bytes`, the same on all processors; a change goes unnoticed once in 2^64.
// `seed` distinguishes equal bytes with different meanings.
uint64_t integrity_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

// As above, computed with the given instruction set, which must be available.
uint64_t integrity_hash_by(InstructionSet set, std::span<const std::byte> bytes, uint64_t seed);

}  // namespace tutti
