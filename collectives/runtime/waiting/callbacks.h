// What callers want to be called at: when a call ends, and while a rank waits.
//
// A call ends while the locks of its communicator are held, and its callback may make calls itself:
// so it is kept until a thread that holds no lock looks after it.
//
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::internal {

class Callbacks {
 public:
  void add(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(callback));
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Without any lock held.
  void run() {
    if (any()) run_all();
  }

  // Called by threads that wait while nothing moves, one at a time or several; empty: nothing is.
  void while_waiting(std::function<void()> hook) {
    const std::lock_guard lock(mutex_);
    hook_ = hook ? std::make_shared<const std::function<void()>>(std::move(hook)) : nullptr;
    has_hook_.store(hook_ != nullptr, std::memory_order_release);
  }
  bool has_hook() const { return has_hook_.load(std::memory_order_acquire); }
  void call_hook() {
    std::shared_ptr<const std::function<void()>> hook;
    {
      const std::lock_guard lock(mutex_);
      hook = hook_;
    }
    if (hook) (*hook)();
  }

 private:
  void run_all() {
    std::vector<std::function<void()>> ready;
    {
      const std::lock_guard lock(mutex_);
      ready.swap(ready_);
      any_.store(false, std::memory_order_relaxed);
    }
    for (const std::function<void()>& callback : ready) callback();
  }

  std::mutex mutex_;
  std::vector<std::function<void()>> ready_;
  std::shared_ptr<const std::function<void()>> hook_;
  std::atomic<bool> any_{false};
  std::atomic<bool> has_hook_{false};
};

}  // namespace tutti::internal
