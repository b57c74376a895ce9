// A gate in front of an object that several threads use, and that one of them ends.
//
//   open      calls enter and leave
//   closing   calls are refused; those inside are waited for, and can be aborted
//   ending    nobody is inside; the object is being destroyed
//   closed    the object is gone
//
// Nothing but the standard library is included: PyTorch's extension is compiled where it is used.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace tutti {

class UseGate {
 public:
  // One thread's use of the object, which stays until the use ends. False: the gate let nobody in.
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

  // Enters for a call. Refused once a close() has begun.
  Use enter() { return enter_while(State::open); }
  // Enters for what must reach the object as long as there is one: an abort, or memory that is
  // given back. Refused once the object is gone; waits while it is being destroyed.
  Use enter_until_closed() { return enter_while(State::closing); }

  bool is_open() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::open;
  }

  // Refuses calls from now on, waits until nobody is inside, and runs `destroy`, which must not
  // throw. A second close() returns when the first has. Must not be called from inside a use.
  template <typename Destroy>
  void close(Destroy destroy) {
    std::unique_lock lock(mutex_);
    if (begin_closing(lock)) end(lock, destroy);
  }
  // The same, but runs `abort` if somebody is still inside after `patience`: it makes them leave.
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

  // False: another thread has closed it meanwhile.
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

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  State state_ = State::open;
  int inside_ = 0;
};

}  // namespace tutti
