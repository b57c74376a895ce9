// Waiting for another rank: spin, then sleep. If a host has more ranks than cores: yield, then
// sleep.
//
//   each rank has a core      | relax() ......... kSpinNs | futex or ppoll() ...
//   ranks share their cores   | sched_yield() .. kYieldNs | futex or ppoll() ...
//
// sched_yield() gives the core to another process for a whole time slice (milliseconds), so a rank
// yields only if the rank that it waits for may need its core. If other programs share the cores, a
// rank spins for about the cost of a sleep, then sleeps. (The kernel lets a thread that wakes from
// sleep preempt another program, but not a thread that has yielded.) All times count from the last
// progress.
//
// Transports that wake slowly, because a network card has to interrupt, justify a longer spin. The
// spinning time adapts to the waits that outlasted it.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "base/relax.h"
#include "collectives/runtime/waiting/times.h"

namespace tutti::internal {

// Adaptive spinning time of one communicator, and the total time waited. Thread-safe.
class WaitTimes {
 public:
  int64_t spin_ns() const { return spin_ns_.load(std::memory_order_relaxed); }
  // Adapts the spinning time to a wait that outlasted it: to at least twice the wait, but at most
  // kMostSpinNs, or back to kSpinNs if the wait was longer than kMostSpinNs.
  void learn_from_sleep(int64_t waited_ns) {
    spin_ns_.store(waited_ns < kMostSpinNs
                       ? std::max(spin_ns(), std::min(2 * waited_ns, kMostSpinNs))
                       : kSpinNs,
                   std::memory_order_relaxed);
  }

  // Returns the total time of all waits, including the current one. If several threads are waiting,
  // the current wait is the one that began last.
  int64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed) + waiting_ns(); }
  // Returns the duration of the current wait; 0 if there is none.
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
  std::atomic<int64_t> spin_ns_{kSpinNs};
  std::atomic<int64_t> waited_ns_{0};
  std::atomic<int64_t> since_ns_{0};  // 0: no thread waits
};

class Backoff {
 public:
  // Prepares a wait. `gives_way`: true if another thread of the job needs this core, so that the
  // wait yields instead of spinning. `wakes_slowly`: true if the transport wakes slowly, so that
  // the spinning time adapts.
  Backoff(bool gives_way, bool wakes_slowly, WaitTimes& times)
      : gives_way_(gives_way),
        learns_(wakes_slowly && !gives_way),
        times_(times),
        awake_ns_(gives_way ? kYieldNs
                  : learns_ ? times.spin_ns()
                            : kSpinNs) {}
  ~Backoff() { end_wait(); }
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;

  void reset() {
    end_wait();
    since_ns_ = 0;
  }

  // Spins or yields once. Returns false when it is time to sleep.
  bool pause() {
    if (since_ns_ == 0) {
      since_ns_ = now_ns();
      times_.begins(since_ns_);
      rounds_ = 0;
      waited_ns_ = 0;
    }
    if (waited_ns_ >= awake_ns_) return false;
    if (gives_way_) {
      ::sched_yield();
    } else {
      relax();
    }
    if (gives_way_ || ++rounds_ % kRoundsPerLook == 0) waited_ns_ = now_ns() - since_ns_;
    return true;
  }

 private:
  static constexpr uint32_t kRoundsPerLook = 16;

  // Ends a wait. It reads the clock only if the rank slept.
  void end_wait() {
    if (since_ns_ == 0) return;
    const bool slept = waited_ns_ >= awake_ns_;
    const int64_t waited_ns = slept ? now_ns() - since_ns_ : waited_ns_;
    times_.ends(waited_ns);
    if (!learns_ || !slept) return;
    times_.learn_from_sleep(waited_ns);
    awake_ns_ = times_.spin_ns();
  }

  const bool gives_way_;
  const bool learns_;
  WaitTimes& times_;
  int64_t awake_ns_;
  int64_t since_ns_ = 0;  // 0: not waiting
  int64_t waited_ns_ = 0;
  uint32_t rounds_ = 0;
};

}  // namespace tutti::internal
