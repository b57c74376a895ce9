// Times the same one-sided calls for Tutti and for MPI: rank 0 accesses rank 1's memory, and
// flushes after each access.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>

namespace tutti::bench {

inline constexpr size_t kLargestPart = 4 << 20;  // in bytes

// Times call(bytes), whose name is "put", "get" or "accumulate" (f32, sum), for several sizes.
// Prints lines such as "put 8 0.012": bytes and the median of the repeats in microseconds.
template <typename Call>
void time_calls(const char* name, const Call& call) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRepeats = 9;
  for (size_t bytes = 8; bytes <= kLargestPart; bytes *= 8) {
    const int calls = static_cast<int>(std::clamp<size_t>((4 << 20) / bytes, 20, 20'000));
    double times[kRepeats];
    for (double& time : times) {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < calls; ++i) call(bytes);
      time = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls;
    }
    std::sort(times, times + kRepeats);
    std::printf("%s %zu %.4f\n", name, bytes, times[kRepeats / 2]);
  }
}

}  // namespace tutti::bench
