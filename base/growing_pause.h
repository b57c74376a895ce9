// Sleeps between looks at something that others bring about: each twice as long as the last, so
// that many ranks on few cores do not keep the last one from its work.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti {

class GrowingPause {
 public:
  explicit GrowingPause(std::chrono::microseconds longest) : longest_(longest) {}

  void sleep() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, longest_);
  }
  // Something moved: there may soon be more to see.
  void reset() { next_ = kFirst; }

 private:
  static constexpr std::chrono::microseconds kFirst{20};
  const std::chrono::microseconds longest_;
  std::chrono::microseconds next_ = kFirst;
};

}  // namespace tutti
