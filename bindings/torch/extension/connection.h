// The communicator behind a process group, from joining to leaving.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "tutti.h"
#include "use_gate.h"

namespace tutti::torch_backend {

// Owns the communicator of a process group. Thread-safe. close(), and therefore the destructor,
// must not be called from within a use.
class Connection {
 public:
  // Takes ownership of the communicator.
  static std::shared_ptr<Connection> made(tutti_comm_t* comm, std::shared_ptr<Driver> driver);
  // Creates a communicator of some ranks of this one. Only those ranks call it.
  std::shared_ptr<Connection> among(const std::vector<int>& ranks);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  // Begins a use, which keeps comm() alive. Throws if the connection was closed.
  UseGate::Use use(const char* call);
  // Begins a use like use(), but returns false instead of throwing if the connection was closed.
  UseGate::Use try_use() { return gate_.enter(); }
  tutti_comm_t* comm() const { return comm_; }

  bool closed() const { return !gate_.is_open(); }
  Driver& driver() { return *driver_; }
  // Aborts calls in flight on all ranks, even while another thread is in close().
  void abort(const std::string& reason);
  // Waits briefly for calls in flight, rejects further calls, aborts the remaining calls, and
  // leaves the communicator.
  void close();
  // Allocates memory that the other ranks of the host can read in place, until `release` is called.
  void* allocate(size_t bytes);
  void release(void* data);

 private:
  Connection(tutti_comm_t* comm, std::shared_ptr<Driver> driver)
      : comm_(comm), driver_(std::move(driver)) {}

  UseGate gate_;  // guards comm_
  tutti_comm_t* comm_;
  const std::shared_ptr<Driver> driver_;
};

// Closes the connections that the program did not close, the newest first. Called when Python
// exits.
void leave_all();

}  // namespace tutti::torch_backend
