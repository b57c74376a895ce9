#include "collectives/runtime/device_calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/gpu/lower.h"
#include "collectives/runtime/compiled_call.h"

namespace tutti::internal {

namespace {

constexpr gpu::MailboxShape kShape{
    .slots = 4, .blocks = 16, .simple_bytes = 128 << 10, .lines_data = 16 << 10};

// Whose published costs stand for those of a device.
std::string_view class_of(std::string_view device_name) {
  if (device_name.find("A100") != std::string_view::npos) return "a100";
  if (device_name.find("B200") != std::string_view::npos) return "b200";
  return "h100";
}

// Rank 0's, for all choose alike.
std::string agreed_class(int device, const gpu::Executor::Exchange& exchange) {
  std::array<char, 8> mine{};
  const std::string_view own = class_of(cuda::device_info(device).name);
  std::copy(own.begin(), own.end(), mine.begin());
  const std::vector<std::byte> all = exchange(std::as_bytes(std::span(mine)));
  std::memcpy(mine.data(), all.data(), mine.size());
  return {mine.data()};
}

bool is_in_place(const Request& request) {
  const auto in = reinterpret_cast<uintptr_t>(request.input.data);
  const auto out = reinterpret_cast<uintptr_t>(request.output.data);
  return in < out + request.output.bytes() && out < in + request.input.bytes();
}

}  // namespace

void check_device_memory(const Request& request) {
  const void* const in = request.input.count > 0 ? request.input.data : nullptr;
  const void* const out = request.output.count > 0 ? request.output.data : nullptr;
  for (const void* pointer : {in, out}) {
    if (pointer == nullptr || cuda::describe(pointer).kind != cuda::MemoryKind::host) continue;
    throw Error(ErrorCode::invalid_argument,
                cat(name(request.collective), ": the buffer at ", pointer,
                    " is said to be device memory, but CUDA does not know it"),
                {.remedy = "allocate it by CUDA, or say MemorySpace::host"});
  }
}

DeviceCalls::DeviceCalls(int device, const Surroundings& surroundings)
    : shape_(surroundings.shape),
      device_(device),
      executor_(shape_.rank, shape_.ranks, device, kShape, surroundings.exchange),
      planner_(shape_, gpu_costs(surroundings.model, agreed_class(device, surroundings.exchange)),
               surroundings.algorithms,
               {.simple_bytes = kShape.simple_bytes, .lines_bytes = kShape.lines_data}),
      misfit_(surroundings.misfit),
      watcher_([this](const std::stop_token& end) { watch(end); }) {}

void DeviceCalls::end() {
  stop();
  watcher_.request_stop();
  if (watcher_.joinable()) watcher_.join();
}

// A kernel that finds a message of another call ends, and cannot call anybody.
void DeviceCalls::watch(const std::stop_token& end) {
  constexpr std::chrono::milliseconds kBetweenLooks{5};
  std::unique_lock lock(mutex_);
  while (!end.stop_requested()) {
    ends_.wait_for(lock, end, kBetweenLooks, [] { return false; });
    const uint64_t mismatch = executor_.mismatch();
    if (mismatch != 0) return misfit_(static_cast<int>(mismatch) - 1);
  }
}

bool DeviceCalls::Kind::is(const Request& other, const Algorithm* other_named,
                           bool other_canonical) const {
  return named == other_named && canonical == other_canonical &&
         request.collective == other.collective && request.op.op == other.op.op &&
         request.op.factor == other.op.factor && request.input.dtype == other.input.dtype &&
         request.output.dtype == other.output.dtype && request.root == other.root &&
         request.input.count == other.input.count && request.output.count == other.output.count &&
         request.count == other.count && request.uneven == other.uneven &&
         is_in_place(request) == is_in_place(other) && request.input_blocks == other.input_blocks &&
         request.output_blocks == other.output_blocks;
}

void DeviceCalls::run(const Request& request, const Algorithm* named, bool canonical,
                      cuda::CUstream stream) {
  const gpu::DeviceCall& call = compiled(request, named, canonical);
  executor_.launch(call, static_cast<const std::byte*>(request.input.data),
                   static_cast<std::byte*>(request.output.data), stream);
}

const gpu::DeviceCall& DeviceCalls::compiled(const Request& request, const Algorithm* named,
                                             bool canonical) {
  const auto known = std::ranges::find_if(
      kept_, [&](const auto& kept) { return kept.first.is(request, named, canonical); });
  if (known != kept_.end()) return *known->second;
  kept_.emplace_back(Kind{request, named, canonical}, compile(request, named, canonical));
  return *kept_.back().second;
}

std::vector<Plan> DeviceCalls::plans_of(const Algorithm& algorithm, const Request& request) const {
  std::vector<Plan> plans;
  Shape shape = shape_;
  shape.root = has_root(request.collective) ? request.root : 0;
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    plans.push_back(make_plan(algorithm.collective, shape,
                              program_of(algorithm, shape, arithmetic_of(request.op.op))));
  }
  return plans;
}

GpuChoice DeviceCalls::choose(const Request& request, const Algorithm* named, bool canonical) {
  constexpr uint64_t kUnknown = 64 << 10;  // what each rank knows of its own blocks decides nothing
  constexpr uint64_t kMostByLines = 64 << 10;
  uint64_t bytes = request.count * size_of(request.dtype());
  if (request.blocks_are_private()) bytes = kUnknown;
  GpuChoice choice{.algorithm = named, .blocks = static_cast<int32_t>(kShape.blocks)};
  choice.protocol = bytes <= kMostByLines ? GpuProtocol::lines : GpuProtocol::simple;
  if (named == nullptr) {
    choice = planner_.choose({.collective = request.collective,
                              .root = request.root,
                              .bytes = bytes,
                              .dtype = request.dtype(),
                              .at_least = canonical ? Grade::canonical : Grade::same_bits,
                              .direct = request.blocks_are_private()});
  }
  const std::string wanted = settings().get_string("TUTTI_GPU_PROTOCOL");
  if (wanted == "simple") choice.protocol = GpuProtocol::simple;
  if (wanted == "lines") choice.protocol = GpuProtocol::lines;
  return choice;
}

std::shared_ptr<const gpu::DeviceCall> DeviceCalls::compile(const Request& request,
                                                            const Algorithm* named,
                                                            bool canonical) {
  check_device_memory(request);
  const GpuChoice choice = choose(request, named, canonical);
  const auto blocks = std::clamp<uint32_t>(static_cast<uint32_t>(choice.blocks), 1, kShape.blocks);
  const std::vector<Plan> plans = plans_of(*choice.algorithm, request);
  CompiledCall compiled = compiled_of(Request(request), shape_.rank, shape_.ranks, choice.algorithm,
                                      &plans[static_cast<size_t>(shape_.rank)]);
  derive(compiled, gpu::limits_of(kShape, choice.protocol, blocks));
  const auto actions = gpu::schedule(plans, kShape.slots);
  return executor_.prepare(
      gpu::lower(compiled, actions[static_cast<size_t>(shape_.rank)], kShape, choice.protocol),
      compiled.dtype);
}

}  // namespace tutti::internal
