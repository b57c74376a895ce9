// Waiting for another rank: spin briefly, then yield, then sleep.
//
// Spinning has the lowest latency, yielding lets another rank use the core (with more ranks than
// cores it starts at once), sleeping costs nothing. All times count from the last progress. The
// spinning time adapts: after long waits the next one is expected to be long too. So does the
// yielding time if the transport wakes slowly: an interrupt of a network card may take longer than
// the message.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "base/relax.h"
#include "collectives/runtime/waiting/times.h"

namespace tutti::internal {

// Adaptive waiting times of one communicator, and the total time waited. Thread-safe.
class SpinTime {
 public:
  int64_t ns() const { return ns_.load(std::memory_order_relaxed); }
  // Records whether a wait ended while spinning.
  void learn(bool spun_enough) {
    ns_.store(spun_enough ? std::min(2 * ns(), kMostSpinNs) : std::max(ns() / 2, kLeastSpinNs),
              std::memory_order_relaxed);
  }
  // Time until yielding ends, including spinning.
  int64_t yield_ns() const { return yield_ns_.load(std::memory_order_relaxed); }
  // Records a wait that outlasted yielding, and its duration.
  void learn_from_sleep(int64_t waited_ns) {
    yield_ns_.store(waited_ns < kMostYieldNs
                        ? std::max(yield_ns(), std::min(2 * waited_ns, kMostYieldNs))
                        : kLeastYieldNs,
                    std::memory_order_relaxed);
  }

  // Total time of all waits, including the current one. If several threads wait, the one that began
  // last counts.
  int64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed) + waiting_ns(); }
  // Duration of the current wait; 0: none.
  int64_t waiting_ns() const {
    const int64_t since = since_ns_.load(std::memory_order_relaxed);
    return since == 0 ? 0 : now_ns() - since;
  }
  void begins(int64_t now) { since_ns_.store(now, std::memory_order_relaxed); }
  void ends(int64_t waited_ns) {
    waited_ns_.fetch_add(waited_ns, std::memory_order_relaxed);
    since_ns_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> ns_{kMostSpinNs};
  std::atomic<int64_t> yield_ns_{kLeastYieldNs};
  std::atomic<int64_t> waited_ns_{0};
  std::atomic<int64_t> since_ns_{0};  // 0: no thread waits
};

class Backoff {
 public:
  Backoff(bool oversubscribed, bool wakes_slowly, SpinTime& spin)
      : oversubscribed_(oversubscribed),
        wakes_slowly_(wakes_slowly && !oversubscribed),
        spin_(spin),
        spin_ns_(oversubscribed ? 0 : spin.ns()),
        yield_ns_(wakes_slowly_ ? spin.yield_ns() : kLeastYieldNs) {}
  ~Backoff() { learn(); }
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;

  void reset() {
    learn();
    since_ns_ = 0;
  }

  // Returns false when it is time to sleep.
  bool pause() {
    if (since_ns_ == 0) {
      since_ns_ = now_ns();
      spin_.begins(since_ns_);
      rounds_ = 0;
      waited_ns_ = 0;
    }
    if (++rounds_ % kRoundsPerLook == 0 || spin_ns_ == 0) waited_ns_ = now_ns() - since_ns_;
    if (waited_ns_ < spin_ns_) {
      relax();
      return true;
    }
    if (waited_ns_ < yield_ns_) {
      ::sched_yield();
      waited_ns_ = now_ns() - since_ns_;
      return true;
    }
    return false;
  }

 private:
  static constexpr uint32_t kRoundsPerLook = 16;

  // The clock is read only for waits that outlasted yielding.
  void learn() {
    if (since_ns_ == 0) return;
    const bool slept = waited_ns_ >= yield_ns_;
    const int64_t waited_ns = slept ? now_ns() - since_ns_ : waited_ns_;
    spin_.ends(waited_ns);
    if (oversubscribed_) return;
    spin_.learn(waited_ns_ < spin_ns_);
    spin_ns_ = spin_.ns();
    if (!wakes_slowly_ || !slept) return;
    spin_.learn_from_sleep(waited_ns);
    yield_ns_ = spin_.yield_ns();
  }

  const bool oversubscribed_;
  const bool wakes_slowly_;
  SpinTime& spin_;
  int64_t spin_ns_;
  int64_t yield_ns_;
  int64_t since_ns_ = 0;  // 0: not waiting
  int64_t waited_ns_ = 0;
  uint32_t rounds_ = 0;
};

}  // namespace tutti::internal
