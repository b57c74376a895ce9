// The compiler flags of this file select XXH3's baseline loop (transport/integrity/BUILD).
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "transport/integrity/kernels.h"

namespace tutti::integrity {

uint64_t hash_baseline(const void* bytes, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}

}  // namespace tutti::integrity
