// The interface by which calls on memory of GPUs use the communicators made for their parts.
#pragma once

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/request.h"

namespace tutti::internal {

// Threads: any.
class DevicePeers {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A call on memory of GPUs: returns when it is in the stream.
  virtual void run_on_device(const Request& request, const CallOptions& options) = 0;
  // A call on the host's memory, on a handle that does not keep the communicator alive.
  virtual Work start_unowned(const Request& request, const CallOptions& options) = 0;
  // All calls end, and all later ones fail.
  virtual void on_abort(const Error& error) = 0;

 protected:
  ~DevicePeers() = default;
};

}  // namespace tutti::internal
