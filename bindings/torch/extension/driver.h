// The thread that moves calls that nobody waits for.
//
// A call of Tutti's moves while some thread of the rank waits for any call. Programs of torch begin
// calls and compute meanwhile, or wait for futures that only a callback completes: then the
// Driver's thread waits. While a thread of the program's waits, it drives, and the Driver rests.
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

// A call under way, as the Driver sees it.
class Driven {
 public:
  virtual ~Driven() = default;
  virtual const Connection* connection() const = 0;
  virtual bool ended() const = 0;
  // Waits for the call a while, unless another thread does. Throws nothing.
  virtual void drive() = 0;
  // Gives its handle back; a call that has not ended fails with the reason.
  virtual void let_go(const std::string& reason) = 0;
};

// One for the communicators of a job, which move together.
class Driver {
 public:
  Driver() : state_(std::make_shared<State>()) {}
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void add(std::shared_ptr<Driven> call);
  // The calls of a connection that have not been given back.
  std::vector<std::shared_ptr<Driven>> of(const Connection& connection);

  class Rest;

 private:
  // The last handle on a call may be the last one on its connection, whose end asks the Driver for
  // its calls: so a handle is never let go of while the mutex is held.
  using Calls = std::list<std::shared_ptr<Driven>>;
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    Calls calls;
    int others_drive = 0;
    bool ending = false;

    Calls take_ended();
  };
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;  // from the first call on; guarded by state_->mutex
};

// While one lives, a thread of the program's drives.
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
