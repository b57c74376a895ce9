#include "collectives/runtime/device/device_routes.h"

#include <span>
#include <utility>

#include "base/dtype.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/gpu/agreement.h"

namespace tutti::internal {

DeviceRoutes::DeviceRoutes(int device, Means means) : device_(device), means_(std::move(means)) {}

// Stores a new object. An abort that arrived while it was created has stopped only the other
// members, so all members are stopped again.
template <typename Pointer>
void DeviceRoutes::keep(Pointer& member, Pointer made) {
  {
    const std::lock_guard lock(mutex_);
    std::swap(member, made);
  }
  if (const std::optional<Error> error = means_.aborted()) stop(*error);
}

// ---- resources of the routes

void DeviceRoutes::make_kernels() {
  tried_kernels_ = true;
  if (means_.hosts.count() > 1 || means_.hosts.ranks() == 1) return;
  if (settings().get_string("TUTTI_GPU_PROTOCOL") == "staged") return;
  const DeviceCalls::Environment& around = means_.of_kernels;
  const cuda::BesideCaptures beside;
  std::unique_ptr<DeviceCalls> made;
  try {
    gpu::Agreement agreement(around.exchange);
    agreement.attempt([&] { made = std::make_unique<DeviceCalls>(device_, around); });
    agreement.require("kernels cannot run there");
    made->connect();
  } catch (const Error& error) {
    if (means_.aborted()) throw;
    log(LogLevel::warning,
        cat("calls on device memory are staged through host memory: ", error.what()));
    return;
  }
  keep(kernels_, std::move(made));
}

DevicePeers& DeviceRoutes::on_host() {
  if (!on_host_) keep(on_host_, means_.split(0, 0));
  return *on_host_;
}

StagedCalls& DeviceRoutes::staged() {
  if (staged_) return *staged_;
  const auto start = [this](const Request& request, const CallOptions& options) {
    const bool by_all = request.collective != Collective::send_recv && means_.hosts.ranks() > 1;
    return by_all ? on_host_->start_unowned(request, options) : means_.start(request, options);
  };
  const cuda::BesideCaptures beside;
  keep(staged_, std::make_unique<StagedCalls>(device_, start, means_.failed));
  return *staged_;
}

ByHosts& DeviceRoutes::by_hosts() {
  if (by_hosts_) return *by_hosts_;
  const int rank = means_.of_kernels.shape.rank;
  keep(inside_, means_.split(means_.hosts.host_of(rank), 0));
  keep(across_, means_.split(means_.hosts.position_of(rank), 0));
  const cuda::BesideCaptures beside;
  by_hosts_.emplace(rank, means_.hosts, device_, inside_, across_);
  return *by_hosts_;
}

std::shared_ptr<void> DeviceRoutes::register_window(void* data, size_t bytes) {
  if (!tried_kernels_) make_kernels();
  if (!kernels_) return nullptr;
  const cuda::BesideCaptures beside;
  return kernels_->register_window(data, bytes);
}

// ---- calls

bool DeviceRoutes::may_go_by_hosts(const DeviceRequest& call) const {
  return call.named == nullptr && !call.canonical &&
         settings().get_string("TUTTI_GPU_PROTOCOL") != "staged" &&
         ByHosts::can(call.request, means_.hosts);
}

DeviceRoutes::Route DeviceRoutes::route_of(const DeviceRequest& call) {
  if (call.request.collective == Collective::send_recv) return Route::staged;
  if (call.options.wire != WireFormat::plain) return Route::staged;
  if (!tried_kernels_) make_kernels();
  if (call.request.op.op == ReduceOp::user) return Route::staged;
  if (kernels_) return Route::kernels;
  return may_go_by_hosts(call) ? Route::by_hosts : Route::staged;
}

void DeviceRoutes::run(const DeviceRequest& call) {
  switch (route_of(call)) {
    case Route::kernels:
      return kernels_->run(call.request, call.named, call.canonical, call.stream());
    case Route::by_hosts:
      return by_hosts().run(call.request, call.options);
    case Route::staged:
      if (call.request.collective != Collective::send_recv && means_.hosts.ranks() > 1) on_host();
      return staged().run(call.request, call.options, call.stream());
  }
}

std::string DeviceRoutes::algorithm_of(const DeviceRequest& call) {
  const Route route = route_of(call);
  if (route == Route::kernels) {
    return kernels_->choose(call.request, call.named, call.canonical).algorithm->name;
  }
  if (call.named != nullptr) return call.named->name;
  return route == Route::by_hosts ? "by_hosts" : "staged";
}

// ---- shutdown

DeviceRoutes::KeptAlive DeviceRoutes::end() {
  KeptAlive kept_alive;
  const auto attempt = [&](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      kept_alive.drained = false;
      log(LogLevel::warning, cat("the calls of a GPU did not complete: ", error.what()));
    }
  };
  attempt([&] {
    if (kernels_) kernels_->drain();
  });
  attempt([&] {
    if (staged_) staged_->drain();
  });
  if (staged_) staged_->end();
  {
    const std::lock_guard lock(mutex_);
    kept_alive.kernels = std::move(kernels_);
    kept_alive.staged = std::move(staged_);
  }
  by_hosts_.reset();
  keep(inside_, {});
  keep(across_, {});
  keep(on_host_, {});
  return kept_alive;
}

void DeviceRoutes::stop(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (kernels_) kernels_->stop();
  for (const auto& made : {on_host_, inside_, across_}) {
    if (made) made->on_abort(error);
  }
}

}  // namespace tutti::internal
