// The abort state of one communicator on one rank.
//
//   1. The first error that is raised is the one that is reported everywhere.
//   2. raise() never blocks and may be called from any thread.
//   3. Every wait for a peer polls raised(), and every sleeping thread is woken by a waker.
//   4. An abort is final: an aborted communicator stays aborted.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tutti {

class AbortState {
 public:
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }

  // Returns true if this call was the first.
  bool raise(const Error& error) {
    std::vector<std::function<void()>> wakers;
    {
      std::lock_guard lock(mutex_);
      if (error_) return false;
      error_ = error;
      raised_.store(true, std::memory_order_release);
      wakers = wakers_;
    }
    for (const auto& wake : wakers) wake();
    return true;
  }

  // Adds a function that raise() invokes, at most once and from the raising thread. `wake` must not
  // block.
  void add_waker(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wakers_.push_back(std::move(wake));
  }

  void throw_if_raised() const {
    if (raised()) throw error();
  }

  Error error() const {
    std::lock_guard lock(mutex_);
    return error_ ? *error_ : Error(ErrorCode::internal, "no abort was raised");
  }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  std::vector<std::function<void()>> wakers_;
};

}  // namespace tutti
