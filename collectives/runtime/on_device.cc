// Calls on memory of GPUs. They are ordered by the caller's stream, and are no operations here: the
// kernel is all there is of them.

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"
#include "collectives/runtime/device_calls.h"
#include "transport/cuda/api.h"
#include "transport/cuda/memory.h"
#include "transport/cuda/stream.h"

namespace tutti::internal {

namespace {

// Of a call's buffers, of which a rank may have one only.
const void* pointer_of(const Request& request) {
  return request.input.space == MemorySpace::device ? request.input.data : request.output.data;
}

// Of what is complete(): a buffer that the rank has no use for is empty.
void check_spaces(const Request& request) {
  const bool has_both = request.input.count > 0 && request.output.count > 0;
  if (!has_both || request.input.space == request.output.space) return;
  throw Error(ErrorCode::unsupported,
              cat(name(request.collective), ": one buffer is device memory, the other is not"),
              {.remedy = "have both in device memory, or both in the host's"});
}

// Alone: what the call writes is what it reads.
void copy_alone(const Request& request, cuda::CUstream stream) {
  check_device_memory(request);
  if (request.collective == Collective::exscan || request.collective == Collective::barrier) return;
  if (request.op.op == ReduceOp::premul_sum || request.uneven) {
    throw Error(ErrorCode::unsupported,
                cat(name(request.collective), " of one rank alone, ",
                    request.uneven ? "with uneven blocks" : "premul_sum", ", on a GPU"),
                {.remedy = "copy the buffer by CUDA"});
  }
  if (request.input.data == request.output.data || request.input.count == 0) return;
  cuda::copy_async(request.output.data, request.input.data, request.input.bytes(), stream);
}

}  // namespace

CommunicatorImpl::DeviceRequest CommunicatorImpl::device_request(const Request& request,
                                                                 const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  cuda::api();  // throws where there is no driver
  DeviceRequest wanted{.request = request, .canonical = must_be_canonical(request, options)};
  tutti::complete(wanted.request, rank_, size());
  check_spaces(wanted.request);
  if (size() > 1) {
    wanted.named =
        named_algorithm(wanted.request, options, wanted.canonical, *plans_in_rank_order_);
  }
  return wanted;
}

void CommunicatorImpl::run_on_device(const Request& request, const CallOptions& options) {
  const DeviceRequest wanted = device_request(request, options);
  auto* const stream = static_cast<cuda::CUstream>(options.stream.handle);
  if (size() == 1) return copy_alone(wanted.request, stream);
  const std::lock_guard lock(device_mutex_);
  device_calls(wanted.request).run(wanted.request, wanted.named, wanted.canonical, stream);
}

std::string CommunicatorImpl::algorithm_on_device(const Request& request,
                                                  const CallOptions& options) {
  const DeviceRequest wanted = device_request(request, options);
  if (size() == 1) return "";
  const std::lock_guard lock(device_mutex_);
  return device_calls(wanted.request)
      .choose(wanted.request, wanted.named, wanted.canonical)
      .algorithm->name;
}

DeviceCalls& CommunicatorImpl::device_calls(const Request& request) {
  if (device_calls_) return *device_calls_;
  const std::vector<Place> places = this->places();
  for (const Place& place : places) {
    if (place.host == places[0].host) continue;
    throw Error(ErrorCode::unsupported, "calls on device memory among ranks of several hosts",
                {.cause = "kernels reach the memory of GPUs of their own host only",
                 .remedy = "split() the communicator by host, and use host memory between hosts"});
  }
  const int device = cuda::describe(pointer_of(request)).device;
  if (device < 0) {
    throw Error(ErrorCode::invalid_argument,
                cat(name(request.collective), ": the buffer at ", pointer_of(request),
                    " is said to be device memory, but is no GPU's"),
                {.remedy = "allocate it by CUDA, or say MemorySpace::host"});
  }
  DeviceCalls::Surroundings around{
      .shape = plans_in_rank_order_->shape(0),
      .model = engine_->options().cost_model,
      .algorithms = engine_->options().algorithms,
      .exchange = [this](std::span<const std::byte> mine) { return exchange(mine); },
      .misfit =
          [this](int peer) {
            raise_everywhere(Error(
                ErrorCode::mismatch,
                cat("the calls of two ranks on device memory do not fit together: ",
                    describe(rank_), " got a message of another call from ", describe(peer)),
                {.cause = "the ranks passed different arguments, or made calls in another order",
                 .remedy =
                     "make the same calls with the same arguments, in the same order, on every "
                     "rank"}));
          }};
  auto made = std::make_unique<DeviceCalls>(device, around);
  const std::lock_guard lock(device_pointer_mutex_);
  device_calls_ = std::move(made);
  if (abort_.raised()) device_calls_->stop();
  return *device_calls_;
}

// By the ranks' ordinary paths.
std::vector<std::byte> CommunicatorImpl::exchange(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(size()));
  run(Request::all_gather({mine.data(), mine.size(), DType::u8},
                          {all.data(), all.size(), DType::u8}),
      {});
  return all;
}

void CommunicatorImpl::stop_devices() {
  const std::lock_guard lock(device_pointer_mutex_);
  if (device_calls_) device_calls_->stop();
}

// Other ranks' kernels write to this one's memory until their last calls are over: it stays until
// they leave, too.
void CommunicatorImpl::leave_devices() {
  if (!device_calls_) return;
  constexpr std::chrono::seconds kPatience{2};
  bool all_leave = false;
  if (!abort_.raised()) {
    try {
      device_calls_->drain();
      const std::shared_ptr<Operation> barrier = start(Request::barrier(), {});
      Patience patience;
      all_leave = barrier == nullptr || wait(*barrier, Deadline::after(kPatience), patience);
    } catch (const Error&) {  // others have ended otherwise
    }
  }
  std::unique_ptr<DeviceCalls> calls;
  {
    const std::lock_guard lock(device_pointer_mutex_);
    calls = std::move(device_calls_);
  }
  calls->end();
  if (all_leave) return;
  // What somebody may still write to is the process's until it ends.
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<DeviceCalls>>();  // NOLINT
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(calls));
}

}  // namespace tutti::internal
