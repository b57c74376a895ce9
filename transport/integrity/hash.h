// XXH3 with 64 bits (Collet, https://xxhash.com), with AVX2 if available. It detects accidental
// changes but not forgery. It also detects exchanged words, which TCP's own 16-bit checksum misses
// because that checksum is a sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/reduce.h"

namespace tutti {

// Returns the hash of `bytes`, which is the same on all processors. A change goes unnoticed with
// probability 2^-64. `seed` distinguishes equal bytes with different meanings.
uint64_t integrity_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

// Returns integrity_hash(), computed with the given instruction set, which must be available. For
// avx512, AVX2 is used.
uint64_t integrity_hash_by(InstructionSet set, std::span<const std::byte> bytes, uint64_t seed);

}  // namespace tutti
