// Plausibility checks of a caller's memory ranges.
#pragma once

#include <cstdint>

namespace tutti {

// Returns true if the range exceeds the end of the address space.
inline bool wraps(const void* data, uint64_t bytes) {
  uint64_t end = 0;
  return __builtin_add_overflow(reinterpret_cast<uintptr_t>(data), bytes, &end);
}

// Returns false if the range is large and parts of it are not mapped in this process. It samples
// pages only, and accepts small ranges unchecked: checking would take longer than using them.
bool may_be_memory(const void* data, uint64_t bytes);

}  // namespace tutti
