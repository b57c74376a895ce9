#include "transport/integrity/hash.h"

#include "transport/integrity/kernels.h"

namespace tutti {

namespace {

// Returns the hash function. AVX-512 is faster in a loop (70 against 52 GB/s), but not between
// system calls: a core takes microseconds to power up its widest units, and 16 KiB then take twice
// as long.
integrity::HashFunction function_of(InstructionSet set) {
#if defined(__x86_64__)
  if (set != InstructionSet::baseline) return integrity::hash_avx2;
#endif
  return integrity::hash_baseline;
}

}  // namespace

uint64_t integrity_hash(std::span<const std::byte> bytes, uint64_t seed) {
  static const integrity::HashFunction selected = function_of(selected_instruction_set());
  return selected(bytes.data(), bytes.size(), seed);
}

uint64_t integrity_hash_by(InstructionSet set, std::span<const std::byte> bytes, uint64_t seed) {
  return function_of(set)(bytes.data(), bytes.size(), seed);
}

}  // namespace tutti
