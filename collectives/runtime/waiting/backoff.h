// How to wait for another rank: spin briefly, then yield, then sleep.
//
// Spinning answers fastest, yielding lets another rank have the core (with more ranks than cores it
// is done at once), sleeping costs nothing. All times count from the last progress. How long it is
// worth spinning is learned: where the last waits were long, the next one will be. So is yielding,
// where the transport wakes slowly: a network card has to interrupt, and that may take longer than
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

// What the waits on one communicator have taught, and how long they were together. Any thread.
class SpinTime {
 public:
  int64_t ns() const { return ns_.load(std::memory_order_relaxed); }
  // A wait ended while spinning, or after.
  void learn(bool spun_enough) {
    ns_.store(spun_enough ? std::min(2 * ns(), kMostSpinNs) : std::max(ns() / 2, kLeastSpinNs),
              std::memory_order_relaxed);
  }
  // Of yielding, the spinning before it included.
  int64_t yield_ns() const { return yield_ns_.load(std::memory_order_relaxed); }
  // A wait outlasted the yielding, and took so long.
  void learn_from_sleep(int64_t waited_ns) {
    yield_ns_.store(waited_ns < kMostYieldNs
                        ? std::max(yield_ns(), std::min(2 * waited_ns, kMostYieldNs))
                        : kLeastYieldNs,
                    std::memory_order_relaxed);
  }

  // Of waits, all together, and the one under way; of several threads that wait at a time the one
  // that began last counts.
  int64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed) + waiting_ns(); }
  // The one under way; 0: none.
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
  std::atomic<int64_t> since_ns_{0};  // 0: nobody waits
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

  // False when it is time to sleep.
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

  // The clock is read for waits only that outlasted the yielding.
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
