// Work on a fake GPU. A task waits for its dependencies, runs, and completes. Streams, events and
// the order of the legacy stream are implemented as dependencies.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace fake_cuda {

class Task;
using TaskPointer = std::shared_ptr<Task>;
using Work = std::function<void()>;

class Task {
 public:
  Task(Work work, std::vector<TaskPointer> after)
      : work_(std::move(work)), after_(std::move(after)) {}

  void run() {
    for (const TaskPointer& task : after_) task->wait();
    after_.clear();  // otherwise all earlier tasks of the stream would stay in memory
    if (work_) work_();
    work_ = nullptr;
    ended_ = std::chrono::steady_clock::now();
    is_done_.store(true, std::memory_order_release);
    is_done_.notify_all();
  }
  void wait() const { is_done_.wait(false, std::memory_order_acquire); }
  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  std::chrono::steady_clock::time_point ended() const { return ended_; }  // only valid if is_done()

 private:
  Work work_;
  std::vector<TaskPointer> after_;
  std::chrono::steady_clock::time_point ended_;
  std::atomic<bool> is_done_{false};
};

}  // namespace fake_cuda
