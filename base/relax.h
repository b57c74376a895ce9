// The spin-loop hint to the processor.
#pragma once

namespace tutti {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // most ARM processors treat "yield" as a no-op
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace tutti
