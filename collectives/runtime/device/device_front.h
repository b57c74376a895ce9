// A communicator's calls on memory of GPUs, which come one at a time: their routes are made at the
// first one, and end with the communicator.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace tutti::internal {

class DeviceRoutes;

// Threads: any.
class DeviceFront {
 public:
  using Make = std::function<std::unique_ptr<DeviceRoutes>(int device)>;
  explicit DeviceFront(Make make);
  ~DeviceFront();

  // use(routes), where `device` is this rank's.
  template <typename Use>
  auto with(int device, Use&& use) {
    const std::lock_guard lock(mutex_);
    return use(routes(device));
  }
  // Ends all calls. Does not wait for one that is being started.
  void stop(const Error& error);
  // The communicator ends. Other ranks' kernels write to this one's memory until their last calls
  // are over: `all_leave` waits for the other ranks, and is false where they may not have come. The
  // memory is the process's then, until it ends.
  void leave(const std::function<bool()>& all_leave);

 private:
  DeviceRoutes& routes(int device);

  const Make make_;
  std::mutex mutex_;
  std::mutex pointer_mutex_;  // of whoever sets routes_, or stops them
  std::unique_ptr<DeviceRoutes> routes_;
};

}  // namespace tutti::internal
