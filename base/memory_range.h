// Whether there can be memory where a caller says that there is.
#pragma once

#include <cstdint>

namespace tutti {

// Whether `bytes` from there on go beyond the last address that there is.
inline bool wraps(const void* data, uint64_t bytes) {
  uint64_t end = 0;
  return __builtin_add_overflow(reinterpret_cast<uintptr_t>(data), bytes, &end);
}

// False where the range is large and parts of it are no memory of this process. Looks at some of
// its pages only; of what is small it believes that it is there: asking would take longer than
// using it.
bool may_be_memory(const void* data, uint64_t bytes);

}  // namespace tutti
