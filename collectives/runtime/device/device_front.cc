#include "collectives/runtime/device/device_front.h"

#include <vector>

#include "base/cuda/stream.h"
#include "collectives/runtime/device/device_routes.h"

namespace tutti::internal {

DeviceFront::DeviceFront(Make make) : make_(std::move(make)) {}
DeviceFront::~DeviceFront() = default;

DeviceRoutes& DeviceFront::routes(int device) {
  if (routes_) return *routes_;
  const cuda::BesideCaptures beside;
  auto made = make_(device);
  const std::lock_guard lock(pointer_mutex_);
  routes_ = std::move(made);
  return *routes_;
}

void DeviceFront::stop(const Error& error) {
  const std::lock_guard lock(pointer_mutex_);
  if (routes_) routes_->stop(error);
}

void DeviceFront::leave(const std::function<bool()>& all_leave) {
  if (!routes_) return;
  DeviceRoutes::KeptAlive kept_alive = routes_->end();
  const bool all_left = kept_alive.kernels && kept_alive.drained && all_leave();
  std::unique_ptr<DeviceRoutes> routes;
  {
    const std::lock_guard lock(pointer_mutex_);
    routes = std::move(routes_);
  }
  if (kept_alive.kernels) kept_alive.kernels->end();
  const bool all_over = kept_alive.drained && (all_left || !kept_alive.kernels);
  if (all_over) return;
  static std::mutex mutex;
  static auto* const kept = new std::vector<DeviceRoutes::KeptAlive>();  // NOLINT
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(kept_alive));
}

}  // namespace tutti::internal
