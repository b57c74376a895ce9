// What a processor is told between two looks at a word that another one is to change.
#pragma once

namespace tutti {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::
                   : "memory");  // "yield" does nothing on most of them; this takes about as long
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace tutti
