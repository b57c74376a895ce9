// Calls on GPU memory. The caller's stream orders them, so they are not Operations, and not in the
// communicator's queues. device_routes.h implements them.

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/cuda/api.h"
#include "base/cuda/memory.h"
#include "base/cuda/multicast.h"
#include "base/cuda/peer_memory.h"
#include "base/cuda/stream.h"
#include "base/error.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"
#include "collectives/runtime/device/device_calls.h"
#include "collectives/runtime/device/device_routes.h"

namespace tutti::internal {

namespace {

// Returns the address of the call's input if the input is in device memory and not empty; otherwise
// that of its output, or null if the output is empty.
const void* pointer_of(const Request& request) {
  if (request.input.space == MemorySpace::device && request.input.count > 0) {
    return request.input.data;
  }
  return request.output.count > 0 ? request.output.data : nullptr;
}

}  // namespace

int device_of(const Request& request) {
  const void* const pointer = pointer_of(request);
  const int device = pointer != nullptr ? cuda::describe(pointer).device : cuda::current_device();
  if (device >= 0) return device;
  throw Error(ErrorCode::invalid_argument,
              cat(name(request.collective), ": the buffer at ", pointer,
                  " is declared as device memory, but belongs to no GPU"),
              {.remedy = "allocate it with CUDA, or pass MemorySpace::host"});
}

namespace {

// Checks that the buffers are in one memory space. The request is complete(): buffers that the rank
// does not use are empty.
void check_spaces(const Request& request) {
  const bool has_both = request.input.count > 0 && request.output.count > 0;
  if (!has_both || request.input.space == request.output.space) return;
  throw Error(ErrorCode::unsupported,
              cat(name(request.collective), ": one buffer is device memory, the other is not"),
              {.remedy = "use device memory for both, or host memory for both"});
}

// Returns true if the call of a single rank copies its input to its output, or does nothing.
bool is_a_copy(const Request& request) {
  return request.collective != Collective::send_recv && !request.uneven &&
         request.op.op != ReduceOp::premul_sum;
}

void copy_alone(const Request& request, cuda::CUstream stream) {
  check_device_memory(request);
  if (request.collective == Collective::exscan || request.collective == Collective::barrier) return;
  if (request.output.data == request.input.data || request.input.count == 0) return;
  const cuda::Context context(device_of(request));
  const cuda::CurrentContext current(context);
  cuda::copy_async(request.output.data, request.input.data, request.input.bytes(), stream);
}

}  // namespace

std::shared_ptr<void> allocate_on_device(size_t bytes) {
  const cuda::Context context(cuda::current_device());
  const size_t least = cuda::round_up_for_multicast(context, std::max<size_t>(bytes, 1));
  const auto memory = std::make_shared<const cuda::SharedMemory>(context, least);
  return {memory, memory->data()};
}

DeviceRequest CommunicatorImpl::device_request(const Request& request, const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  cuda::api();  // throws if there is no driver
  if (!options.after.empty()) {
    throw Error(ErrorCode::unsupported,
                cat(name(request.collective), " on device memory cannot follow other works"),
                {.remedy = "enqueue it on a stream after the GPU calls that it follows; wait for "
                           "calls on host memory first"});
  }
  DeviceRequest wanted{.request = request, .canonical = false, .options = options};
  tutti::complete(wanted.request, rank_, size());
  check_spaces(wanted.request);
  check_wire(wanted.request, options.wire);
  if (size() == 1 || request.collective == Collective::send_recv) return wanted;
  wanted.canonical = compiler_.must_be_canonical(request, options);
  wanted.named = compiler_.named_algorithm(wanted.request, options, wanted.canonical);
  return wanted;
}

void CommunicatorImpl::run_on_device(const Request& request, const CallOptions& options) {
  const DeviceRequest wanted = device_request(request, options);
  const bool is_plain = options.wire == WireFormat::plain;
  if (size() == 1 && is_plain && is_a_copy(wanted.request)) {
    return copy_alone(wanted.request, wanted.stream());
  }
  devices_.with(device_of(wanted.request), [&](DeviceRoutes& routes) { routes.run(wanted); });
}

std::string CommunicatorImpl::algorithm_on_device(const Request& request,
                                                  const CallOptions& options) {
  const DeviceRequest wanted = device_request(request, options);
  if (size() == 1) return "";
  return devices_.with(device_of(wanted.request),
                       [&](DeviceRoutes& routes) { return routes.algorithm_of(wanted); });
}

std::shared_ptr<void> CommunicatorImpl::register_window(void* data, size_t bytes) {
  require_own_process();
  abort_.throw_if_raised();
  const cuda::PointerInfo memory = cuda::describe(data);
  if (bytes == 0 || memory.kind != cuda::MemoryKind::device) {
    throw Error(ErrorCode::invalid_argument,
                cat("register_window: ", bytes, " bytes at ", data, " are not GPU memory"),
                {.remedy = "use memory from allocate_on_device() or cudaMalloc(); for host memory "
                           "use register_memory()"});
  }
  if (size() == 1) return nullptr;
  return devices_.with(memory.device,
                       [&](DeviceRoutes& routes) { return routes.register_window(data, bytes); });
}

std::unique_ptr<DeviceRoutes> CommunicatorImpl::make_device_routes(int device) {
  const auto on_mismatch = [this](int peer) {
    raise_everywhere(Error(
        ErrorCode::mismatch,
        cat("collective mismatch on device memory: ", describe(rank_),
            " received a message of another call from ", describe(peer)),
        {.cause = "the ranks passed different arguments, or made calls in different orders",
         .remedy = "make the same calls with the same arguments in the same order on every rank",
         .rank = members_[peer]}));
  };
  const std::vector<Place> places = this->places();
  DeviceRoutes::Means means{
      .of_kernels = {.shape = size() > 1 ? compiler_.shape() : Shape{},
                     .model = engine_->options().cost_model,
                     .algorithms = engine_->options().algorithms,
                     .exchange = [this](std::span<const std::byte> mine) { return exchange(mine); },
                     .on_mismatch = on_mismatch},
      .hosts = Hosts::of(places),
      .split = [this](int color,
                      int key) { return split_off(color, key, {.parent = this, .is_part = true}); },
      .start = [this](const Request& own,
                      const CallOptions& options) { return start_unowned(own, options); },
      .failed =
          [this](const Error& error) {
            if (!abort_.raised()) raise_everywhere(error);
          },
      .aborted = [this] { return failure(); }};
  return std::make_unique<DeviceRoutes>(device, std::move(means));
}

Work CommunicatorImpl::start_unowned(const Request& request, const CallOptions& options) {
  return {this, start(request, options)};
}

// Gathers equally many bytes of each rank, in rank order, by an all_gather in host memory.
std::vector<std::byte> CommunicatorImpl::exchange(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(size()));
  run(Request::all_gather({mine.data(), mine.size(), DType::u8},
                          {all.data(), all.size(), DType::u8}),
      {});
  return all;
}

// Called before the communicator is destroyed. Waits until all ranks have called this function.
// Returns false after two seconds, or if a rank has failed.
bool CommunicatorImpl::meet_all() {
  constexpr std::chrono::seconds kPatience{2};
  if (abort_.raised()) return false;
  try {
    const std::shared_ptr<Operation> barrier = start(Request::barrier(), {});
    StallState stall;
    return barrier == nullptr || wait(*barrier, Deadline::after(kPatience), stall);
  } catch (const Error&) {  // other ranks have failed
    return false;
  }
}

}  // namespace tutti::internal
