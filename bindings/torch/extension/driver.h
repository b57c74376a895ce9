// A thread that makes progress on calls while no thread waits for them.
//
// Tutti's calls progress while some thread of the rank waits for any call. Torch programs start
// calls and then compute, or wait for futures that only a callback completes. During that time the
// Driver's thread waits for the calls. While a thread of the program waits for a call, that thread
// makes progress, and the Driver is idle.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::torch_backend {

class Connection;

// A call in flight on which the Driver makes progress.
class Driven {
 public:
  virtual ~Driven() = default;
  virtual const Connection* connection() const = 0;
  virtual bool ended() const = 0;
  // Waits for the call for a short time, unless another thread waits for it. Never throws.
  virtual void drive() = 0;
  // Releases the call's handle. A call that has not ended fails with `reason`.
  virtual void let_go(const std::string& reason) = 0;
};

// The thread and its calls. The communicators of a job share it, because they progress together.
class Driver {
 public:
  Driver() : state_(std::make_shared<State>()) {}
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void add(std::shared_ptr<Driven> call);
  // Returns the connection's calls whose handles have not been released.
  std::vector<std::shared_ptr<Driven>> of(const Connection& connection);

  class Rest;

 private:
  // Calls in progress. References to them are released only while the mutex is not held: releasing
  // the last reference to a call may destroy its connection, whose destructor calls of(), which
  // locks the mutex.
  using Calls = std::list<std::shared_ptr<Driven>>;
  struct State {
    std::mutex mutex;  // guards the following members
    std::condition_variable changed;
    Calls calls;
    int others_drive = 0;
    bool ending = false;

    Calls take_ended();
  };
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;  // started with the first call; guarded by state_->mutex
};

// Keeps the Driver idle while an object of this class lives, because a thread of the program makes
// progress on the calls.
class Driver::Rest {
 public:
  explicit Rest(Driver& driver);
  ~Rest();
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace tutti::torch_backend
