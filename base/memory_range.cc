#include "base/memory_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

bool may_be_memory(const void* data, uint64_t bytes) {
  constexpr uint64_t kLarge = 16 << 20;
  constexpr uint64_t kLooks = 16;
  if (wraps(data, bytes)) return false;
  if (bytes < kLarge) return true;
  static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(data);
  for (uint64_t i = 0; i <= kLooks; ++i) {
    const uint64_t address = start + (i == kLooks ? bytes - 1 : bytes / kLooks * i);
    unsigned char resident = 0;
    // Some sandboxes lack mincore(), so only ENOMEM counts as a refusal.
    void* const at = reinterpret_cast<void*>(address / page * page);  // NOLINT: an address
    if (::mincore(at, 1, &resident) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

}  // namespace tutti
