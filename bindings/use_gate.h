// A gate that guards an object used by several threads and destroyed by one of them.
//
//   open      calls enter and leave
//   closing   new calls are rejected; close() waits for those inside, and can abort them
//   ending    no thread is inside; the object is being destroyed
//   closed    the object is gone
//
// Includes only the standard library, because PyTorch's extension is compiled at run time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace tutti {

class UseGate {
 public:
  // One thread's use of the object, which keeps the object alive. It converts to false if the gate
  // rejected the use.
  class [[nodiscard]] Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (gate_ != nullptr) gate_->leave();
    }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    friend class UseGate;
    explicit Use(UseGate* gate) : gate_(gate) {}
    UseGate* gate_ = nullptr;
  };

  // Enters for a call. The gate rejects the call once a close() has begun.
  Use enter() { return enter_while(State::open); }
  // Enters for an operation that must succeed as long as the object exists: an abort, or the return
  // of memory. Waits while the object is being destroyed. Once the object is gone, the gate rejects
  // the operation.
  Use enter_until_closed() { return enter_while(State::closing); }

  bool is_open() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::open;
  }

  // Rejects calls from now on, waits until no thread is inside, and runs `destroy`, which must not
  // throw. A second close() waits until the first one has closed the gate. Must not be called from
  // within a use.
  template <typename Destroy>
  void close(Destroy destroy) {
    std::unique_lock lock(mutex_);
    if (begin_closing(lock)) end(lock, destroy);
  }
  // Closes the gate in the same way, but runs `abort` if a thread is still inside after `patience`;
  // `abort` must make the threads leave.
  template <typename Abort, typename Destroy>
  void close(std::chrono::nanoseconds patience, Abort abort, Destroy destroy) {
    std::unique_lock lock(mutex_);
    if (!begin_closing(lock)) return;
    if (!changed_.wait_for(lock, patience, [this] { return inside_ == 0; })) {
      lock.unlock();
      abort();
      lock.lock();
    }
    end(lock, destroy);
  }

 private:
  enum class State { open, closing, ending, closed };

  Use enter_while(State last) {
    std::unique_lock lock(mutex_);
    if (last != State::open) changed_.wait(lock, [this] { return state_ != State::ending; });
    if (state_ > last) return {};
    ++inside_;
    return Use(this);
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0 && state_ != State::open) changed_.notify_all();
  }

  // Begins to close the gate. If another thread has begun already, waits until the gate is closed
  // and returns false.
  bool begin_closing(std::unique_lock<std::mutex>& lock) {
    if (state_ != State::open) {
      changed_.wait(lock, [this] { return state_ == State::closed; });
      return false;
    }
    state_ = State::closing;
    return true;
  }

  template <typename Destroy>
  void end(std::unique_lock<std::mutex>& lock, Destroy destroy) {
    changed_.wait(lock, [this] { return inside_ == 0; });
    state_ = State::ending;
    lock.unlock();
    destroy();
    lock.lock();
    state_ = State::closed;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  State state_ = State::open;
  int inside_ = 0;
};

}  // namespace tutti
