#include "collectives/runtime/device/staged_calls.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "collectives/runtime/device/device_calls.h"

namespace tutti::internal {

namespace {

// Keeps the word and the data on different cache lines.
constexpr size_t kAlignment = 256;
constexpr uint32_t kOver = 1;
constexpr uint64_t kSliceBytes = 4 << 20;
// Time that the proxy thread waits for one call before it checks the other calls.
constexpr std::chrono::microseconds kTurn{100};

// Sizes are rounded up, so that calls of similar length share stages.
constexpr size_t kGrain = 64 << 10;
size_t whole_grains(size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns true if the call may leave parts of the output unchanged.
bool may_leave_parts(const Request& request, const CallOptions& options) {
  return request.uneven || request.collective == Collective::exscan || options.may_be_shorter;
}

void copy(void* to, const void* from, size_t bytes, cuda::CUstream stream) {
  if (bytes > 0) cuda::copy_async(to, from, bytes, stream);
}

// Returns the call in slices, so that the network and the GPU's bus work at the same time. Only
// collectives that treat each element alike are divided.
std::vector<Request> slices_of(const Request& request) {
  const Collective c = request.collective;
  const uint64_t size = size_of(request.output.dtype);
  const bool sliced = c == Collective::all_reduce || c == Collective::broadcast ||
                      c == Collective::reduce || c == Collective::scan || c == Collective::exscan;
  if (!sliced || request.count * size < 2 * kSliceBytes) return {request};
  std::vector<Request> slices;
  const uint64_t each = kSliceBytes / size;
  for (uint64_t first = 0; first < request.count; first += each) {
    Request& slice = slices.emplace_back(request);
    slice.count = std::min(each, request.count - first);
    if (slice.input.count > 0) {
      slice.input.data = static_cast<const std::byte*>(slice.input.data) + first * size;
      slice.input.count = slice.count;
    }
    if (slice.output.count > 0) {
      slice.output.data = static_cast<std::byte*>(slice.output.data) + first * size;
      slice.output.count = slice.count;
    }
  }
  return slices;
}

}  // namespace

StagedCalls::StagedCalls(int device, Start start, std::function<void(const Error&)> failed)
    : context_(device),
      start_(std::move(start)),
      failed_(std::move(failed)),
      order_(context_),
      proxy_([this](const std::stop_token& end) { serve(end); }) {}

StagedCalls::~StagedCalls() { end(); }

// ---- called by the caller's thread

StagedCalls::Stage& StagedCalls::take_stage(size_t bytes) {
  const cuda::BesideCaptures beside;
  const auto free = std::ranges::find_if(stages_, [&](const auto& stage) {
    return stage->memory.size() >= bytes && stage->is_free();
  });
  if (free != stages_.end()) return **free;
  // Stages that are too small are kept, because freeing memory synchronizes the whole device.
  stages_.push_back(std::make_unique<Stage>(*this, context_, bytes));
  stages_.back()->word() = kOver;
  return *stages_.back();
}

StagedCalls::Stage& StagedCalls::prepare(const Request& request, const CallOptions& options) {
  // all_reduce gives the same result in place, so its input and output share one staging buffer.
  const bool in_place = request.collective == Collective::all_reduce;
  const size_t input = in_place ? 0 : aligned(request.input.bytes());
  Stage& stage = take_stage(whole_grains(kAlignment + input + request.output.bytes()));
  stage.taken = true;
  stage.request = request;
  stage.request.input.data = stage.memory.data() + kAlignment;
  stage.request.output.data = stage.memory.data() + kAlignment + input;
  stage.request.input.space = stage.request.output.space = MemorySpace::host;
  stage.algorithm = options.algorithm;
  stage.options = options;
  stage.options.algorithm = stage.algorithm;
  stage.options.stream = {};
  stage.options.after = {};
  return stage;
}

// Enqueues the call. The stream copies all slices of the input before the first slice of the
// output; meanwhile the host's calls run. If enqueuing fails half-way, other ranks already wait for
// the call, so the failure aborts them.
void StagedCalls::run(const Request& request, const CallOptions& options, cuda::CUstream stream) {
  check_device_memory(request);
  const cuda::CurrentContext current(context_);
  std::vector<std::pair<Request, Stage*>> slices;  // all memory is allocated before any wait
  try {
    for (const Request& slice : slices_of(request)) {
      slices.emplace_back(slice, &prepare(slice, options));
    }
    order_.begin(stream);
    for (const auto& [slice, stage] : slices) copy_to_stage(slice, *stage, stream);
    for (const auto& [slice, stage] : slices) fetch(slice, *stage, stream);
    order_.end(stream);
  } catch (const Error& error) {
    for (const auto& [slice, stage] : slices) stage->taken = false;
    failed_(error);
    throw;
  }
}

void StagedCalls::copy_to_stage(const Request& request, Stage& stage, cuda::CUstream stream) {
  const Request& on_host = stage.request;
  stage.captured = cuda::is_captured(stream);
  // The previous launch of a graph must have sent its message.
  if (request.sends) wait_for_host(stage, stream);
  copy(const_cast<void*>(on_host.input.data), request.input.data, request.input.bytes(), stream);
  if (may_leave_parts(request, stage.options)) {
    copy(on_host.output.data, request.output.data, request.output.bytes(), stream);
  }
  cuda::call_on_host(stream, hand_over, &stage);
}

void StagedCalls::fetch(const Request& request, Stage& stage, cuda::CUstream stream) {
  if (!request.sends) {
    wait_for_host(stage, stream);
    copy(request.output.data, stage.request.output.data, request.output.bytes(), stream);
  }
  if (!stage.captured) stage.copied.record(stream);
  stage.taken = false;
}

void StagedCalls::wait_for_host(const Stage& stage, cuda::CUstream stream) {
  cuda::wait_for_word(stream, reinterpret_cast<uint32_t*>(stage.memory.device_data()), kOver);
}

void StagedCalls::drain() {
  const cuda::CurrentContext current(context_);
  const cuda::BesideCaptures beside;
  for (const auto& stage : stages_) {
    if (!stage->captured) stage->copied.synchronize();
    stage->on_host.wait(true, std::memory_order_acquire);
  }
}

void StagedCalls::end() {
  proxy_.request_stop();
  if (proxy_.joinable()) proxy_.join();
  for (const InFlight& call : in_flight_) release(*call.stage);
  in_flight_.clear();
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  for (Stage* const stage : new_) release(*stage);
  new_.clear();
}

// ---- called by the driver's thread

void StagedCalls::hand_over(void* pointer) {
  Stage& stage = *static_cast<Stage*>(pointer);
  stage.on_host.store(true, std::memory_order_relaxed);
  std::atomic_ref(stage.word()).store(0, std::memory_order_relaxed);
  const std::lock_guard lock(stage.owner.mutex_);
  if (stage.owner.is_over_) return release(stage);
  stage.owner.new_.push_back(&stage);
  stage.owner.handed_over_.notify_one();
}

// ---- called by the proxy thread

void StagedCalls::serve(const std::stop_token& end) {
  while (!end.stop_requested()) {
    take_new(end);
    wait_a_turn();
    std::erase_if(in_flight_, [this](InFlight& call) { return advance(call); });
  }
}

void StagedCalls::take_new(const std::stop_token& end) {
  std::deque<Stage*> handed_over;
  {
    std::unique_lock lock(mutex_);
    if (in_flight_.empty()) handed_over_.wait(lock, end, [this] { return !new_.empty(); });
    handed_over.swap(new_);
  }
  for (Stage* const stage : handed_over) begin(*stage);
}

void StagedCalls::wait_a_turn() {
  if (in_flight_.empty()) return;
  try {
    static_cast<void>(in_flight_.front().work.wait_for(kTurn));
  } catch (const Error&) {  // advance() handles it
  }
}

void StagedCalls::begin(Stage& stage) {
  try {
    in_flight_.push_back({&stage, start_(stage.request, stage.options)});
  } catch (const Error& error) {
    finish(stage, &error);
  }
}

// Makes progress on a call. Returns true if it has ended.
bool StagedCalls::advance(InFlight& call) {
  if (call.work.poll() == WorkState::in_flight) return false;
  const std::optional<Error> error = call.work.error();
  finish(*call.stage, error ? &*error : nullptr);
  return true;
}

// Lets the stream continue, even after a failure; the caller's next call then throws the error.
void StagedCalls::finish(Stage& stage, const Error* error) {
  if (error != nullptr) failed_(*error);
  release(stage);
}

void StagedCalls::release(Stage& stage) {
  std::atomic_ref(stage.word()).store(kOver, std::memory_order_release);
  stage.on_host.store(false, std::memory_order_release);
  stage.on_host.notify_all();
}

}  // namespace tutti::internal
