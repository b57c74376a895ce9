#include "transport/integrity/hash.h"

#include "transport/integrity/kernels.h"

namespace tutti {

namespace {

integrity::HashFunction function_of(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return integrity::hash_avx2;
    case InstructionSet::avx512:
      return integrity::hash_avx512;
#endif
    default:
      return integrity::hash_baseline;
  }
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
