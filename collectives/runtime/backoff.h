// How to wait for another rank: spin briefly, then yield, then sleep.
//
// Spinning answers fastest, yielding lets another rank have the core (with more ranks than cores it
// is done at once), sleeping costs nothing. All times count from the last progress. How long it is
// worth spinning is learned: where the last waits were long, the next one will be.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "base/relax.h"

namespace tutti::internal {

// What the waits on one communicator have taught. Any thread.
class SpinTime {
 public:
  int64_t ns() const { return ns_.load(std::memory_order_relaxed); }
  // A wait ended while spinning, or after.
  void learn(bool spun_enough) {
    ns_.store(spun_enough ? std::min(2 * ns(), kMost) : std::max(ns() / 2, kLeast),
              std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kLeast = 1'000;
  static constexpr int64_t kMost = 20'000;
  std::atomic<int64_t> ns_{kMost};
};

class Backoff {
 public:
  Backoff(bool oversubscribed, SpinTime& spin)
      : oversubscribed_(oversubscribed), spin_(spin), spin_ns_(oversubscribed ? 0 : spin.ns()) {}
  ~Backoff() { learn(); }
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;

  void reset() {
    learn();
    since_ns_ = 0;
  }

  // False when it is time to sleep.
  bool pause() {
    if (since_ns_ == 0) {
      since_ns_ = now_ns();
      rounds_ = 0;
      waited_ns_ = 0;
    }
    if (++rounds_ % kRoundsPerLook == 0 || spin_ns_ == 0) waited_ns_ = now_ns() - since_ns_;
    if (waited_ns_ < spin_ns_) {
      relax();
      return true;
    }
    if (waited_ns_ < kYieldNs) {
      ::sched_yield();
      waited_ns_ = now_ns() - since_ns_;
      return true;
    }
    return false;
  }

 private:
  static constexpr int64_t kYieldNs = 200'000;
  static constexpr uint32_t kRoundsPerLook = 16;

  void learn() {
    if (since_ns_ == 0 || oversubscribed_) return;
    spin_.learn(waited_ns_ < spin_ns_);
    spin_ns_ = spin_.ns();
  }

  const bool oversubscribed_;
  SpinTime& spin_;
  int64_t spin_ns_;
  int64_t since_ns_ = 0;  // 0: not waiting
  int64_t waited_ns_ = 0;
  uint32_t rounds_ = 0;
};

}  // namespace tutti::internal
