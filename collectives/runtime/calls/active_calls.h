// Counts the calls in flight in this process, over all communicators of the job. Waiting threads
// and the progress thread use the count.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "transport/wait_set.h"

namespace tutti::internal {

// The count. Thread-safe.
class ActiveCalls {
 public:
  // Starts at 0. `rings`: true if there is a progress thread, which ring() must wake.
  ActiveCalls(WaitSet& wait_set, bool rings) : wait_set_(wait_set), rings_(rings) {}

  // Counts a call that begins; called by ActiveCall.
  void begins() {
    count_.fetch_add(1);
    if (wait_set_.in_use()) wait_set_.wake();  // the sleeping thread does not watch this call yet
    ring();
  }
  void ends() { count_.fetch_sub(1, std::memory_order_relaxed); }

  int count() const { return count_.load(std::memory_order_relaxed); }

  // Let the progress thread sleep while there are no calls. The sleep ends if ring() was called
  // after `rung` was read.
  uint32_t rung() const { return rung_.load(); }
  void wait(uint32_t rung) const { rung_.wait(rung); }
  void ring() {
    if (!rings_) return;
    rung_.fetch_add(1);
    rung_.notify_all();
  }

 private:
  WaitSet& wait_set_;
  const bool rings_;
  std::atomic<int> count_{0};
  std::atomic<uint32_t> rung_{0};
};

// RAII count of one call in flight.
class ActiveCall {
 public:
  ActiveCall() = default;
  ActiveCall(const ActiveCall&) = delete;
  ActiveCall& operator=(const ActiveCall&) = delete;
  ~ActiveCall() { end(); }

  void begin(ActiveCalls& all) {
    end();
    all_ = &all;
    all.begins();
  }
  void end() {
    if (all_ != nullptr) std::exchange(all_, nullptr)->ends();
  }
  bool begun() const { return all_ != nullptr; }

 private:
  ActiveCalls* all_ = nullptr;
};

}  // namespace tutti::internal
