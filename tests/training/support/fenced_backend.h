// A second backend whose memory only its own kernels can access, like a device's. It shows that
// code above the kernels does not access memory.
#pragma once

#include <cstdint>

#include "training/core/backend.h"

namespace tutti::training::testing {

// Elements are at a fixed distance from their addresses, which are inaccessible: an access kills
// the process. The backend's kernels are the CPU's, run on the elements; errors are reported when a
// kernel is waited for. The backend has a few gigabytes, which are never released.
const Backend& fenced_backend();

// Counts of calls in this process.
struct FencedCalls {
  int64_t kernels = 0;
  int64_t waits = 0;  // waits for results of kernels
  int64_t synchronized = 0;
};
FencedCalls fenced_calls();

}  // namespace tutti::training::testing
