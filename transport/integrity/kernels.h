// XXH3, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::integrity {

using HashFunction = uint64_t (*)(const void* bytes, size_t size, uint64_t seed);

uint64_t hash_baseline(const void* bytes, size_t size, uint64_t seed);
uint64_t hash_avx2(const void* bytes, size_t size, uint64_t seed);

}  // namespace tutti::integrity
