// A second backend, whose memory only its own kernels can access, like a device's. Tests run with
// it to show that the code above the kernels does not access the memory.
#pragma once

#include <cstdint>

#include "training/core/backend.h"

namespace tutti::training::testing {

// The addresses of tensors are inaccessible, so that an access kills the process. The elements are
// at a fixed distance from these addresses. The kernels are the CPU's; they report errors when the
// caller waits for them. The backend has a few gigabytes of memory, which are never released.
const Backend& fenced_backend();

// Counts of calls in this process.
struct FencedCalls {
  int64_t kernels = 0;
  int64_t waits = 0;  // waits for results of kernels
  int64_t synchronized = 0;
};
FencedCalls fenced_calls();

}  // namespace tutti::training::testing
