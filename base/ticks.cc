#include "base/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti {

namespace {

// A simultaneous reading of both clocks. Two readings give the tick rate.
struct Moment {
  Ticks ticks;
  int64_t ns;
};

Moment now() { return {ticks(), now_ns()}; }

const Moment start = now();

}  // namespace

namespace {

bool has_invariant_counter() {
#if defined(__x86_64__)
  constexpr unsigned kPowerManagement = 0x80000007;
  constexpr unsigned kInvariantCounter = 1u << 8;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(kPowerManagement, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kInvariantCounter) != 0;
#else
  return false;
#endif
}

}  // namespace

// Returns true if the cycle counter is used. The answer is cached, because CPUID is slow in a
// virtual machine.
bool counts_cycles() {
  static const bool counts = has_invariant_counter();
  return counts;
}

int64_t nanoseconds_between(Ticks from, Ticks to) {
  if (!counts_cycles()) return to - from;
  // Shorter intervals would give a poor estimate of the rate.
  constexpr int64_t kLongEnoughNs = 1'000'000;
  Moment later = now();
  while (later.ns - start.ns < kLongEnoughNs) later = now();
  const double rate =
      static_cast<double>(later.ns - start.ns) / static_cast<double>(later.ticks - start.ticks);
  return static_cast<int64_t>(static_cast<double>(to - from) * rate);
}

}  // namespace tutti
