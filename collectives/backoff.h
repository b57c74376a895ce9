// How to wait for another rank: spin briefly, then yield, then sleep.
//
// Spinning answers fastest, yielding lets another rank have the core (with more ranks than cores it
// is done at once), sleeping costs nothing. All times count from the last progress.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/deadline.h"

namespace tutti::internal {

class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : spin_ns_(oversubscribed ? 0 : kSpinNs) {}

  void reset() { since_ns_ = 0; }

  // False when it is time to sleep.
  bool pause() {
    if (since_ns_ == 0) {
      since_ns_ = now_ns();
      rounds_ = 0;
    }
    if (++rounds_ % kRoundsPerLook == 0 || spin_ns_ == 0) waited_ns_ = now_ns() - since_ns_;
    if (rounds_ < kRoundsPerLook) waited_ns_ = 0;
    if (waited_ns_ < spin_ns_) {
      __builtin_ia32_pause();
      return true;
    }
    if (waited_ns_ < kYieldNs) {
      ::sched_yield();
      waited_ns_ = now_ns() - since_ns_;
      return true;
    }
    return false;
  }

  int64_t waited_ns() const { return since_ns_ == 0 ? 0 : now_ns() - since_ns_; }

 private:
  static constexpr int64_t kSpinNs = 20'000;
  static constexpr int64_t kYieldNs = 200'000;
  static constexpr uint32_t kRoundsPerLook = 16;

  const int64_t spin_ns_;
  int64_t since_ns_ = 0;
  int64_t waited_ns_ = 0;
  uint32_t rounds_ = 0;
};

}  // namespace tutti::internal
