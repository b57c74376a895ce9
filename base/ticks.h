// The cheapest clock available, for code that is timed on every call: the processor's cycle counter
// if its rate is constant (10 ns to read), otherwise the monotonic clock (25 ns).
#pragma once

#include <cstdint>

#include "base/deadline.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti {

// A clock reading; only differences are meaningful.
using Ticks = int64_t;

// Returns true if the cycle counter is used.
bool counts_cycles();
// Returns the time between two readings of this process. A call during the first millisecond of the
// process waits until that has passed, in order to measure the rate of the counter.
int64_t nanoseconds_between(Ticks from, Ticks to);

inline Ticks ticks() {
#if defined(__x86_64__)
  static const bool cycles = counts_cycles();
  if (cycles) return static_cast<Ticks>(__rdtsc());
#endif
  return now_ns();
}

}  // namespace tutti
