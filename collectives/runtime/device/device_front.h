// Serializes a communicator's calls on GPU memory. The routes are created at the first call and
// destroyed with the communicator.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace tutti::internal {

class DeviceRoutes;

// Owns the routes of one communicator. Thread-safe.
class DeviceFront {
 public:
  using Make = std::function<std::unique_ptr<DeviceRoutes>(int device)>;
  explicit DeviceFront(Make make);
  ~DeviceFront();

  // Calls use(routes) and returns its result. `device` is this rank's GPU.
  template <typename Use>
  auto with(int device, Use&& use) {
    const std::lock_guard lock(mutex_);
    return use(routes(device));
  }
  // Terminates all calls. Does not wait for a call that is being enqueued.
  void stop(const Error& error);
  // Ends the calls; called when the communicator is destroyed. Other ranks' kernels write to this
  // rank's memory until their last calls have ended. So `all_leave` waits for the other ranks; if
  // it returns false, some might still run kernels, and the memory is kept until the process ends.
  void leave(const std::function<bool()>& all_leave);

 private:
  DeviceRoutes& routes(int device);

  const Make make_;
  std::mutex mutex_;
  std::mutex pointer_mutex_;  // held to set routes_ or to stop the routes
  std::unique_ptr<DeviceRoutes> routes_;
};

}  // namespace tutti::internal
