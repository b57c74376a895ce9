// Pauses between looks at something that others bring about: short ones at first, since mostly it
// is about to come; then each twice as long as the last, so that many ranks on few cores do not
// keep the last one from its work.
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
  // Something moved: there may soon be more to see.
  void reset() { *this = GrowingPause(longest_); }

 private:
  static constexpr int kYields = 50;
  std::chrono::microseconds longest_;
  std::chrono::microseconds next_{20};
  int yields_ = 0;
};

}  // namespace tutti
