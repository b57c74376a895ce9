// A pool of threads for callbacks that may block on further calls. Callbacks of torch's futures may
// block: for example, PowerSGD starts its second all_reduce in a callback. The pool starts a thread
// only if all others are busy.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::torch_backend {

class CallbackPool {
 public:
  static CallbackPool& instance() {
    // Never freed, because its threads may outlive static objects.
    static auto* const pool = new CallbackPool;
    return *pool;
  }

  void run(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (idle_ >= jobs_.size()) {
      changed_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }

 private:
  [[noreturn]] void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [this] { return !jobs_.empty(); });
      --idle_;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  size_t idle_ = 0;                         // guarded by mutex_
};

}  // namespace tutti::torch_backend
