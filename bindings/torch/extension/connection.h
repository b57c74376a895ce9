// A communicator of the library's behind a process group, from joining to leaving.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "tutti.h"
#include "use_gate.h"

namespace tutti::torch_backend {

// Threads: any. close(), and so the last handle's end, must not come from within a use.
class Connection {
 public:
  // Takes the communicator.
  static std::shared_ptr<Connection> made(tutti_comm_t* comm, std::shared_ptr<Driver> driver);
  // A communicator of some ranks of this one, called by them only.
  std::shared_ptr<Connection> among(const std::vector<int>& ranks);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  // As long as a use lives, comm() does. Throws where the connection was closed.
  UseGate::Use use(const char* call);
  // The same without an exception: false where it was closed.
  UseGate::Use try_use() { return gate_.enter(); }
  tutti_comm_t* comm() const { return comm_; }

  bool closed() const { return !gate_.is_open(); }
  Driver& driver() { return *driver_; }
  // Aborts calls under way on all ranks, also while another thread is in close().
  void abort(const std::string& reason);
  // Gives calls under way a moment, then refuses further ones, aborts what is left, and leaves.
  void close();
  // Memory that the other ranks of the host read where it lies, until `release` is called.
  void* allocate(size_t bytes);
  void release(void* data);

 private:
  Connection(tutti_comm_t* comm, std::shared_ptr<Driver> driver)
      : comm_(comm), driver_(std::move(driver)) {}

  UseGate gate_;  // of comm_
  tutti_comm_t* comm_;
  const std::shared_ptr<Driver> driver_;
};

// Closes what the program did not, the newest first. For Python's end.
void leave_all();

}  // namespace tutti::torch_backend
