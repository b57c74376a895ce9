// The cheapest clock there is, for what is timed on every call: the processor's cycle counter where
// it counts at one rate at all times (10 ns to read), else the monotonic clock (25 ns).
#pragma once

#include <cstdint>

#include "base/deadline.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti {

// A reading; only differences mean something.
using Ticks = int64_t;

// Whether the cycle counter is used.
bool counts_cycles();
// Between two readings of this process.
int64_t nanoseconds_between(Ticks from, Ticks to);

inline Ticks ticks() {
#if defined(__x86_64__)
  static const bool cycles = counts_cycles();
  if (cycles) return static_cast<Ticks>(__rdtsc());
#endif
  return now_ns();
}

}  // namespace tutti
