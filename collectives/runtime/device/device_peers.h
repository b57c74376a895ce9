// Interface through which calls on GPU memory use internal communicators of some or all ranks.
#pragma once

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/request.h"

namespace tutti::internal {

// A communicator of some or all ranks. Thread-safe.
class DevicePeers {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Enqueues a call on GPU memory on its stream and returns.
  virtual void run_on_device(const Request& request, const CallOptions& options) = 0;
  // Starts a call on host memory, with a handle that does not keep the communicator alive.
  virtual Work start_unowned(const Request& request, const CallOptions& options) = 0;
  // Ends all calls in flight and fails all later ones.
  virtual void on_abort(const Error& error) = 0;

 protected:
  ~DevicePeers() = default;
};

}  // namespace tutti::internal
