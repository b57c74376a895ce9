#include "training/core/backend.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

BackendMemory allocate(const Backend* backend, size_t bytes) {
  if (backend != nullptr) return backend->allocate(bytes);
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw system_error(cat("cannot reserve ", bytes >> 20, " MiB of addresses for activations"),
                       errno,
                       {.remedy = "raise the limit on virtual memory (ulimit -v), or use a smaller "
                                  "micro-batch"});
  }
  ::madvise(address, bytes, MADV_HUGEPAGE);  // fewer page faults; harmless if refused
  return {static_cast<std::byte*>(address),
          [bytes](std::byte* memory) { ::munmap(memory, bytes); }};
}

}  // namespace tutti::training
