// How many calls of the job's communicators are under way in this process: what whoever waits, and
// the progress thread, go by.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "transport/wait_set.h"

namespace tutti::internal {

// Threads: any.
class ActiveCalls {
 public:
  // `rings`: a progress thread listens.
  ActiveCalls(WaitSet& wait_set, bool rings) : wait_set_(wait_set), rings_(rings) {}

  // By ActiveCall.
  void begins() {
    count_.fetch_add(1);
    if (wait_set_.in_use()) wait_set_.wake();  // it does not sleep on this call
    if (rings_) ring();
  }
  void ends() { count_.fetch_sub(1, std::memory_order_relaxed); }

  int count() const { return count_.load(std::memory_order_relaxed); }

  // For the progress thread: sleeps while there are none, but not through a ring after `rung`.
  uint32_t rung() const { return rung_.load(); }
  void wait(uint32_t rung) const { rung_.wait(rung); }
  void ring() {
    rung_.fetch_add(1);
    rung_.notify_all();
  }

 private:
  WaitSet& wait_set_;
  const bool rings_;
  std::atomic<int> count_{0};
  std::atomic<uint32_t> rung_{0};
};

// One of them, until it ends in one way or another.
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
