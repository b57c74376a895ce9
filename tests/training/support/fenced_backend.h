// A second backend, whose memory nothing but its own kernels can touch, like a device's: it shows
// that what is above the kernels knows no memory.
#pragma once

#include <cstdint>

#include "training/core/backend.h"

namespace tutti::training::testing {

// Elements lie at a fixed distance from their addresses, where nobody may read or write: whoever
// does is killed. Its kernels are the CPU's, on the elements; what they find is told when it is
// waited for. It has some gigabytes, which are never given back.
const Backend& fenced_backend();

// How often, in this process.
struct FencedCalls {
  int64_t kernels = 0;
  int64_t waits = 0;  // for what a kernel has found
  int64_t synchronized = 0;
};
FencedCalls fenced_calls();

}  // namespace tutti::training::testing
