#include "collectives/runtime/device_routes.h"

#include <span>
#include <utility>

#include "base/dtype.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/gpu/agreement.h"
#include "collectives/runtime/communicator_impl.h"

namespace tutti::internal {

namespace {

// Below, two kernels more cost more than the bytes that they save between hosts.
constexpr uint64_t kLeastByHosts = 32 << 10;

// A reduction whose steps within and across hosts give what one step would, but for roundings.
bool composes(const Request& request) {
  return request.op.op != ReduceOp::avg || is_float(request.output.dtype);
}

Reduction across_hosts(const Reduction& inside) {
  return inside.op == ReduceOp::premul_sum ? Reduction(ReduceOp::sum) : inside;
}

Blocks equal_parts(uint64_t count, int ranks) {
  Blocks blocks;
  const auto p = static_cast<uint64_t>(ranks);
  uint64_t start = 0;
  for (uint64_t r = 0; r < p; ++r) {
    blocks.counts.push_back(count / p + (r < count % p ? 1 : 0));
    blocks.displacements.push_back(start);
    start += blocks.counts.back();
  }
  return blocks;
}

}  // namespace

DeviceRoutes::DeviceRoutes(int device, Means means) : device_(device), means_(std::move(means)) {}

// An abort that came while this was made has stopped the rest.
template <typename Pointer>
void DeviceRoutes::keep(Pointer& member, Pointer made) {
  {
    const std::lock_guard lock(mutex_);
    std::swap(member, made);
  }
  if (const std::optional<Error> error = means_.aborted()) stop(*error);
}

// ---- what the routes need

void DeviceRoutes::make_kernels() {
  tried_kernels_ = true;
  if (means_.hosts.count() > 1 || means_.hosts.ranks() == 1) return;
  if (settings().get_string("TUTTI_GPU_PROTOCOL") == "staged") return;
  const DeviceCalls::Surroundings& around = means_.of_kernels;
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
        cat("calls on device memory go through the host's memory: ", error.what()));
    return;
  }
  keep(kernels_, std::move(made));
}

CommunicatorImpl& DeviceRoutes::on_host() {
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

void DeviceRoutes::make_groups() {
  if (inside_) return;
  const int rank = means_.of_kernels.shape.rank;
  keep(inside_, means_.split(means_.hosts.host_of(rank), 0));
  keep(across_, means_.split(means_.hosts.position_of(rank), 0));
}

std::shared_ptr<void> DeviceRoutes::register_window(void* data, size_t bytes) {
  if (!tried_kernels_) make_kernels();
  if (!kernels_) return nullptr;
  const cuda::BesideCaptures beside;
  return kernels_->register_window(data, bytes);
}

// ---- calls

bool DeviceRoutes::may_go_by_hosts(const DeviceRequest& call) const {
  const Hosts& hosts = means_.hosts;
  const int each = hosts.largest();
  return call.request.collective == Collective::all_reduce && call.named == nullptr &&
         settings().get_string("TUTTI_GPU_PROTOCOL") != "staged" && !call.canonical &&
         composes(call.request) && call.request.output.bytes() >= kLeastByHosts && each > 1 &&
         hosts.count() > 1 && each * hosts.count() == hosts.ranks();
}

DeviceRoutes::Route DeviceRoutes::route_of(const DeviceRequest& call) {
  if (call.request.collective == Collective::send_recv) return Route::staged;
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
      make_groups();
      return all_reduce_by_hosts(call);
    case Route::staged:
      if (call.request.collective != Collective::send_recv && means_.hosts.ranks() > 1) on_host();
      return staged().run(call.request, call.options, call.stream());
  }
}

// In the output, which every rank has all of.
void DeviceRoutes::all_reduce_by_hosts(const DeviceRequest& call) {
  const Request& request = call.request;
  const Blocks blocks = equal_parts(request.output.count, inside_->size());
  const auto mine = static_cast<size_t>(inside_->rank());
  Buffer part = request.output;
  part.data = static_cast<std::byte*>(part.data) + blocks.displacements[mine] * size_of(part.dtype);
  part.count = blocks.counts[mine];
  inside_->run_on_device(Request::reduce_scatterv(request.input, part, blocks, request.op),
                         call.options);
  across_->run_on_device(Request::all_reduce(as_const(part), part, across_hosts(request.op)),
                         call.options);
  inside_->run_on_device(Request::all_gatherv(as_const(part), request.output, blocks),
                         call.options);
}

std::string DeviceRoutes::algorithm_of(const DeviceRequest& call) {
  const Route route = route_of(call);
  if (route == Route::kernels) {
    return kernels_->choose(call.request, call.named, call.canonical).algorithm->name;
  }
  if (call.named != nullptr) return call.named->name;
  return route == Route::by_hosts ? "by_hosts" : "staged";
}

// ---- the end

DeviceRoutes::Remains DeviceRoutes::end() {
  Remains remains;
  const auto attempt = [&](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      remains.drained = false;
      log(LogLevel::warning, cat("a GPU's calls have not ended: ", error.what()));
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
    remains.kernels = std::move(kernels_);
    remains.staged = std::move(staged_);
  }
  keep(inside_, {});
  keep(across_, {});
  keep(on_host_, {});
  return remains;
}

void DeviceRoutes::stop(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (kernels_) kernels_->stop();
  for (const auto& made : {on_host_, inside_, across_}) {
    if (made) made->on_abort(error);
  }
}

}  // namespace tutti::internal
