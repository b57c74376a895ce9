// Pauses between polls of a condition that another thread or process changes. The first pauses only
// yield, because the change is usually near. Then each sleep is twice as long as the last, up to a
// limit, so that many waiting ranks on few cores do not slow down the ranks that they wait for.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti {

class GrowingPause {
 public:
  explicit GrowingPause(std::chrono::microseconds longest) : longest_(longest) {}

  void sleep() {
    if (yields_ < kYields) {
      ++yields_;
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, longest_);
  }
  // Restarts with short pauses after progress.
  void reset() { *this = GrowingPause(longest_); }

 private:
  static constexpr int kYields = 50;
  std::chrono::microseconds longest_;
  std::chrono::microseconds next_{20};
  int yields_ = 0;
};

}  // namespace tutti
