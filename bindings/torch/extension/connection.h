// A communicator of the library's behind a process group, from joining to leaving, and the thread
// that moves what nobody waits for.
//
// A call of Tutti's moves while some thread of the rank waits for any call. Programs of torch begin
// calls and compute meanwhile, or wait for futures that only a callback completes: then the
// Driver's thread waits. While a thread of the program's waits, it drives, and the Driver rests.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "tutti.h"

namespace tutti::torch_backend {

class Connection;

// A call under way, as the Driver sees it.
class Driven {
 public:
  virtual ~Driven() = default;
  virtual const Connection* connection() const = 0;
  virtual bool ended() const = 0;
  // Waits for the call a while, unless another thread does.
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
  // While one lives, a thread of the program's drives.
  class Rest {
   public:
    explicit Rest(Driver& driver);
    ~Rest();
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    Driver& driver_;
  };
  // The calls of a connection that have not been given back.
  std::vector<std::shared_ptr<Driven>> of(const Connection& connection);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<std::shared_ptr<Driven>> calls;
    int others_drive = 0;
    bool ending = false;
  };
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;  // from the first call on; guarded by state_->mutex
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Joins a job whose ranks meet in `store`. Blocks.
  static std::shared_ptr<Connection> through(c10::intrusive_ptr<c10d::Store> store, int rank,
                                             int size, std::chrono::milliseconds timeout);
  // A communicator of some ranks of this one, called by them only.
  std::shared_ptr<Connection> among(const std::vector<int>& ranks);
  ~Connection();

  // The communicator, as long as this lives. Throws where it was closed.
  class Use {
   public:
    explicit Use(Connection& connection);
    tutti_comm_t* comm() const { return connection_.comm_; }

   private:
    Connection& connection_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  bool closed() const { return closing_; }
  Driver& driver() { return *driver_; }
  // Aborts calls under way on all ranks. From any thread, at any time.
  void abort(const std::string& reason);
  // Waits a moment for calls under way, and leaves. No call may be made any more.
  void close();
  // Memory that the other ranks of the host read where it lies, until `release` is called.
  void* allocate(size_t bytes);
  void release(void* data);

 private:
  Connection(tutti_comm_t* comm, std::shared_ptr<Driver> driver);
  static std::shared_ptr<Connection> made(tutti_comm_t* comm, std::shared_ptr<Driver> driver);

  std::shared_mutex mutex_;  // shared: somebody uses comm_
  tutti_comm_t* comm_;
  std::atomic<bool> closing_{false};
  const std::shared_ptr<Driver> driver_;
};

// Closes what the program did not, the newest first. For Python's end.
void leave_all();

// Throws c10::DistBackendError with the library's text, for a status that is not TUTTI_OK.
void check(tutti_status_t status, const char* call);
std::exception_ptr error_of(tutti_status_t status, const std::string& text, const char* call);

}  // namespace tutti::torch_backend
