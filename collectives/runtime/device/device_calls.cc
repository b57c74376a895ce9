#include "collectives/runtime/device/device_calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/mix_bits.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/gpu/joint_steps.h"
#include "collectives/gpu/lending.h"
#include "collectives/gpu/lower.h"
#include "collectives/runtime/calls/compiled_call.h"
#include "collectives/runtime/calls/plans.h"

namespace tutti::internal {

namespace {

// Returns the class of rank 0's GPU, so that all ranks choose the same algorithms.
std::string agreed_class(int device, const gpu::Exchange& exchange) {
  std::array<char, 32> mine{};  // name of the class, padded with zeros
  const std::string_view own = gpu_class_for(cuda::device_info(device).name);
  std::copy(own.begin(), own.end(), mine.begin());
  const std::vector<std::byte> all = exchange(std::as_bytes(std::span(mine)));
  std::memcpy(mine.data(), all.data(), mine.size());
  return {mine.data()};
}

// Returns how kernels can reach the buffers of other ranks.
Reach reach_of(const Request& request, const std::optional<gpu::LentBuffers>& lent) {
  if (!lent) return Reach::slots;
  const DType dtype = request.dtype();
  const bool adds = (request.op.op == ReduceOp::sum || request.op.op == ReduceOp::avg) &&
                    (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  const bool has_addresses =
      lent->multicast_input != nullptr &&
      (lent->multicast_output != nullptr || request.collective == Collective::reduce_scatter);
  return adds && has_addresses ? Reach::multicast : Reach::windows;
}

}  // namespace

void check_device_memory(const Request& request) {
  const void* const in = request.input.count > 0 ? request.input.data : nullptr;
  const void* const out = request.output.count > 0 ? request.output.data : nullptr;
  for (const void* pointer : {in, out}) {
    if (pointer == nullptr || cuda::describe(pointer).kind != cuda::MemoryKind::host) continue;
    throw Error(ErrorCode::invalid_argument,
                cat(name(request.collective), ": the buffer at ", pointer,
                    " is declared as device memory, but CUDA did not allocate it"),
                {.remedy = "allocate it with CUDA, or pass MemorySpace::host"});
  }
}

DeviceCalls::DeviceCalls(int device, const Environment& surroundings)
    : device_(device),
      surroundings_(surroundings),
      executor_(surroundings.shape.rank, surroundings.shape.ranks, device,
                gpu::mailbox_shape_of(surroundings.shape.ranks)),
      watcher_([this](const std::stop_token& end) { watch(end); }) {}

void DeviceCalls::connect() {
  executor_.connect(surroundings_.exchange);
  if (settings().get_string("TUTTI_GPU_PROTOCOL") == "engines") make_copy_calls();
  const GpuCosts costs =
      gpu_costs(surroundings_.model, agreed_class(device_, surroundings_.exchange));
  planner_.emplace(surroundings_.shape, costs, surroundings_.algorithms);
}

// Creates the copy calls. The ranks synchronise by a barrier whose messages carry the call's
// signature.
void DeviceCalls::make_copy_calls() {
  meeting_ = compile({.request = Request::barrier()},
                     {.algorithm = &require_algorithm(Collective::barrier, "dissemination"),
                      .protocol = GpuProtocol::simple,
                      .blocks = 1});
  const Shape& shape = surroundings_.shape;
  copies_.emplace(shape.rank, shape.ranks, cuda::Context(device_), executor_.windows(),
                  [this](uint64_t signature, cuda::CUstream stream) {
                    executor_.launch(*meeting_, nullptr, nullptr, stream, {.salt = signature});
                  });
  if (copies_->connect(surroundings_.exchange)) return;
  copies_.reset();
  log(LogLevel::warning,
      "calls use kernels despite TUTTI_GPU_PROTOCOL=engines; likely cause: ranks share a GPU in "
      "one process, where their streams could deadlock; remedy: use one GPU or one process per "
      "rank");
}

void DeviceCalls::drain() {
  executor_.drain();
  if (copies_) copies_->drain();
}

void DeviceCalls::stop() {
  executor_.stop();
  if (copies_) copies_->stop();
}

void DeviceCalls::end() {
  stop();
  watcher_.request_stop();
  if (watcher_.joinable()) watcher_.join();
}

// Polls for mismatches. A kernel that finds a message of another call terminates, but cannot notify
// the host.
void DeviceCalls::watch(const std::stop_token& end) {
  constexpr std::chrono::milliseconds kBetweenLooks{5};
  std::unique_lock lock(mutex_);
  while (!end.stop_requested()) {
    ends_.wait_for(lock, end, kBetweenLooks, [] { return false; });
    const uint64_t mismatch = executor_.mismatch();
    if (mismatch != 0) return surroundings_.on_mismatch(static_cast<int>(mismatch) - 1);
  }
}

bool DeviceCalls::Kind::operator==(const Kind& other) const {
  const Request& a = request;
  const Request& b = other.request;
  return named == other.named && canonical == other.canonical && reach == other.reach &&
         a.collective == b.collective && a.op.op == b.op.op && a.op.factor == b.op.factor &&
         a.input.dtype == b.input.dtype && a.output.dtype == b.output.dtype && a.root == b.root &&
         a.input.count == b.input.count && a.output.count == b.output.count && a.count == b.count &&
         a.uneven == b.uneven && a.input_blocks == b.input_blocks &&
         a.output_blocks == b.output_blocks;
}

// Hashes the fields in which the calls of a program usually differ; operator== compares all.
size_t DeviceCalls::HashOfKind::operator()(const Kind& kind) const {
  const Request& request = kind.request;
  uint64_t hash = kGolden;
  const auto add = [&](uint64_t part) { hash = mix_bits(hash ^ part); };
  add(static_cast<uint64_t>(request.collective) << 32 |
      static_cast<uint64_t>(request.dtype()) << 16 | static_cast<uint64_t>(request.op.op) << 8 |
      static_cast<uint64_t>(kind.reach));
  add(request.count);
  add(request.input.count);
  add(request.output.count);
  add(static_cast<uint64_t>(request.root));
  for (const Blocks* const blocks : {&request.input_blocks, &request.output_blocks}) {
    for (const uint64_t count : blocks->counts) add(count);
    for (const uint64_t displacement : blocks->displacements) add(displacement);
  }
  return hash;
}

void DeviceCalls::run(const Request& request, const Algorithm* named, bool canonical,
                      cuda::CUstream stream) {
  if (copies_ && copies_->can(request, stream)) return copies_->run(request, stream);
  const std::optional<gpu::LentBuffers> found = lent_buffers(request);
  gpu::DeviceCall& call = compiled({request, named, canonical, reach_of(request, found)});
  const gpu::LentBuffers lent = call.lends() ? *found : gpu::LentBuffers{};
  executor_.launch(call, static_cast<const std::byte*>(request.input.data),
                   static_cast<std::byte*>(request.output.data), stream, lent);
}

std::optional<gpu::LentBuffers> DeviceCalls::lent_buffers(const Request& request) const {
  if (!gpu::may_lend(request)) return std::nullopt;
  return executor_.windows()->find(request);
}

std::shared_ptr<void> DeviceCalls::register_window(void* data, size_t bytes) {
  const uint64_t number = executor_.windows()->add(data, bytes, surroundings_.exchange);
  // The caller may keep the registration longer than the communicator.
  return {data, [windows = executor_.windows(), number](void*) { windows->remove(number); }};
}

gpu::DeviceCall& DeviceCalls::compiled(const Kind& kind) {
  if (const auto* const kept = kept_.find(kind)) return **kept;
  executor_.retire(kept_.take_old());
  return *kept_.add(kind, compile(kind, choose(kind)));
}

GpuChoice DeviceCalls::choose(const Request& request, const Algorithm* named, bool canonical) {
  return choose({request, named, canonical, reach_of(request, lent_buffers(request))});
}

GpuChoice DeviceCalls::choose(const Kind& kind) {
  const Request& request = kind.request;
  constexpr uint64_t kMostByLines = 64 << 10;
  const CallToPlan call = wanted_of(request, surroundings_.shape.ranks,
                                    kind.canonical ? Grade::canonical : Grade::same_bits);
  GpuChoice choice{
      .algorithm = kind.named,
      .protocol = call.bytes <= kMostByLines ? GpuProtocol::lines : GpuProtocol::simple,
      .blocks = static_cast<int32_t>(executor_.shape().blocks)};
  if (kind.named == nullptr) choice = planner_->choose(call, kind.reach);
  const std::string wanted = settings().get_string("TUTTI_GPU_PROTOCOL");
  if (wanted == "simple") choice.protocol = GpuProtocol::simple;
  if (wanted == "lines") choice.protocol = GpuProtocol::lines;
  return choice;
}

std::shared_ptr<gpu::DeviceCall> DeviceCalls::compile(const Kind& kind, const GpuChoice& choice) {
  const Request& request = kind.request;
  check_device_memory(request);
  const auto blocks =
      std::clamp<uint32_t>(static_cast<uint32_t>(choice.blocks), 1, executor_.shape().blocks);
  Shape shape = surroundings_.shape;
  shape.root = has_root(request.collective) ? request.root : 0;
  const std::vector<Plan> plans =
      make_plans(*choice.algorithm, shape, arithmetic_of(request.op.op));
  const bool lends = kind.reach != Reach::slots && choice.protocol == GpuProtocol::simple;
  std::vector<CompiledCall> compiled(plans.size());
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (rank != shape.rank && !lends) continue;
    const auto r = static_cast<size_t>(rank);
    compiled[r] = compiled_of(Request(request), rank, shape.ranks, choice.algorithm, &plans[r]);
    derive(compiled[r], gpu::limits_of(executor_.shape(), choice.protocol, blocks));
  }
  std::vector<gpu::Actions> actions = gpu::schedule(plans, executor_.shape().slots);
  std::optional<std::vector<gpu::Actions>> lending;
  if (lends) lending = gpu::lend(plans, compiled, actions, executor_.shape().slots);
  if (lending) {
    actions =
        kind.canonical ? std::move(*lending) : gpu::join(plans, *lending, executor_.shape().slots);
  }
  const auto self = static_cast<size_t>(shape.rank);
  gpu::LoweredCall lowered =
      gpu::lower(compiled, shape.rank, actions[self], executor_.shape(), choice.protocol);
  lowered.lends = lending.has_value();
  return executor_.prepare(lowered, compiled[self].dtype);
}

}  // namespace tutti::internal
