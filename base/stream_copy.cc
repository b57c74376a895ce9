#include "base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tutti {

#if defined(__x86_64__)

void stream_copy(void* destination, const void* source, size_t bytes) {
  constexpr size_t kLine = 64;
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  const size_t to_line = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  const size_t head = std::min(bytes, to_line);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    const auto* source_line = reinterpret_cast<const __m128i*>(from + done);
    auto* line = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source_line);
    const __m128i b = _mm_loadu_si128(source_line + 1);
    const __m128i c = _mm_loadu_si128(source_line + 2);
    const __m128i d = _mm_loadu_si128(source_line + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  std::memcpy(to + done, from + done, bytes - done);
}

void stream_fence() { _mm_sfence(); }

#else

void stream_copy(void* destination, const void* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}

void stream_fence() {}

#endif

}  // namespace tutti
