// Monotonic time and deadlines.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tutti {

using Clock = std::chrono::steady_clock;

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Converts `seconds`, which must be neither negative nor NaN. A time that does not fit (infinity,
// 300 years) becomes the longest duration, which Deadline treats as never.
inline std::chrono::nanoseconds duration_of(double seconds) {
  constexpr double kLongest = 9.2e9;
  if (seconds >= kLongest) return std::chrono::nanoseconds::max();
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::nanoseconds duration) {
    const Clock::time_point now = Clock::now();
    return duration >= Clock::time_point::max() - now ? never() : Deadline(now + duration);
  }

  bool passed() const { return when_ != Clock::time_point::max() && Clock::now() >= when_; }

  // Returns the time left, in [0, cap], so that it can be passed to poll() and similar calls.
  std::chrono::milliseconds remaining(std::chrono::milliseconds cap = std::chrono::hours(1)) const {
    if (when_ == Clock::time_point::max()) return cap;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return std::clamp(left, std::chrono::milliseconds(0), cap);
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace tutti
