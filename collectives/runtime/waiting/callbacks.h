// User callbacks: on completion of a call, and while a rank waits.
//
// A call completes while locks of its communicator are held, but its callback may start other
// calls. So the callback is queued until a thread that holds no lock runs it.
//
// Thread-safe.
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
  // Runs the queued callbacks. The caller must hold no lock.
  void run() {
    if (any()) run_all();
  }

  // Sets the function that waiting threads call, possibly concurrently, while nothing progresses.
  // An empty function removes it.
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
