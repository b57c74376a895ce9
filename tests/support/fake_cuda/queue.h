// A thread that runs tasks in order. After the queue is destroyed, the thread ends once all tasks
// have run. When the process exits, the thread is abandoned, as a GPU would be.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/support/fake_cuda/task.h"

namespace fake_cuda {

class Queue {
 public:
  Queue() : state_(std::make_shared<State>()) {
    std::thread([state = state_] { serve(*state); }).detach();
  }
  ~Queue() {
    const std::lock_guard lock(state_->mutex);
    state_->is_closed = true;
    state_->changed.notify_one();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void put(TaskPointer task) {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    state_->changed.notify_one();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<TaskPointer> tasks;
    bool is_closed = false;
  };

  static void serve(State& state) {
    for (;;) {
      TaskPointer task;
      {
        std::unique_lock lock(state.mutex);
        state.changed.wait(lock, [&] { return state.is_closed || !state.tasks.empty(); });
        if (state.tasks.empty()) return;
        task = std::move(state.tasks.front());
        state.tasks.pop_front();
      }
      task->run();
    }
  }

  std::shared_ptr<State> state_;
};

}  // namespace fake_cuda
