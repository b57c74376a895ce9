#include "base/copy_bytes.h"

#include <cstring>

namespace tutti {

void copy_in_blocks(void* destination, const void* source, size_t bytes) {
  size_t block = 2048;
  constexpr size_t kMost = 1 << 20;  // beyond its L2 cache the C library uses other instructions
  // Hides the value: compilers may inline a copy of a constant size by a similar instruction.
  asm("" : "+r"(block));
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  for (; bytes > block && bytes <= kMost; bytes -= block) {
    std::memcpy(to, from, block);
    to += block;
    from += block;
  }
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace tutti
