// The profiler plugin: one implementation, and for each version of NCCL's interface the struct that
// NCCL looks up. A failure to record an event never makes a call of NCCL fail.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>

#include "base/settings.h"
#include "base/text.h"
#include "bindings/nccl_plugins/host_log.h"
#include "bindings/nccl_plugins/profiler.h"
#include "bindings/nccl_plugins/profiler_abi.h"

namespace tutti::nccl {

namespace {

constexpr char kName[] = "Tutti";
constexpr int kBeforeV5 =
    ncclProfileGroup | ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp | ncclProfileProxyStep;
constexpr int kSinceV5 = kBeforeV5 | ncclProfileGroupApi | ncclProfileCollApi | ncclProfileP2pApi |
                         ncclProfileKernelLaunch;

template <typename Body>
void try_to(Body&& body) noexcept {
  guarded(NCCL_INIT, std::forward<Body>(body));
}

std::string hexadecimal(uint64_t number) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(number >> shift) & 15];
  return text;
}

// --- event descriptions ---

std::string text_of(const char* text) { return text == nullptr ? "?" : text; }

// Describes a collective in NCCL's queues, which a kernel executes.
template <typename Description>
Event call_of(const Description& what) {
  Event event{.kind = EventKind::call, .name = text_of(what.coll.func)};
  event.arguments = {
      {"call", what.coll.seqNumber},          {"count", what.coll.count},
      {"type", text_of(what.coll.datatype)},  {"root", what.coll.root},
      {"algorithm", text_of(what.coll.algo)}, {"protocol", text_of(what.coll.proto)}};
  if constexpr (requires { what.coll.nChannels; }) {
    event.arguments.emplace_back("channels", what.coll.nChannels);
  } else {
    event.arguments.emplace_back("channels", what.coll.nMaxChannels);
  }
  return event;
}

template <typename Description>
Event message_of(const Description& what) {
  Event event{.kind = EventKind::call, .name = text_of(what.p2p.func)};
  event.arguments = {
      {"peer", what.p2p.peer}, {"count", what.p2p.count}, {"type", text_of(what.p2p.datatype)}};
  return event;
}

template <typename Call>
Event api_of(const Call& call) {
  Event event{.kind = EventKind::call_api, .name = text_of(call.func)};
  event.arguments = {{"count", call.count}, {"type", text_of(call.datatype)}};
  return event;
}

Event proxy_op_of(const ncclProfilerProxyOp& op) {
  Event event{.kind = EventKind::proxy_op, .name = op.isSend != 0 ? "send" : "receive"};
  event.arguments = {{"channel", op.channelId},
                     {"peer", op.peer},
                     {"steps", op.nSteps},
                     {"chunk_bytes", op.chunkSize}};
  return event;
}

// Returns nullopt for a kind that was not requested.
template <typename Description>
std::optional<Event> event_of(const Description& what) {
  switch (what.type) {
    case ncclProfileGroup:
      return Event{.kind = EventKind::group, .name = "group"};
    case ncclProfileColl:
      return call_of(what);
    case ncclProfileP2p:
      return message_of(what);
    case ncclProfileProxyOp:
      return proxy_op_of(what.proxyOp);
    case ncclProfileProxyStep: {
      Event event{.kind = EventKind::proxy_step, .name = "step"};
      event.arguments = {{"step", what.proxyStep.step}};
      return event;
    }
    default:
      break;
  }
  if constexpr (requires { what.groupApi; }) {
    switch (what.type) {
      case ncclProfileGroupApi: {
        Event event{.kind = EventKind::group_api, .name = "group"};
        event.arguments = {{"depth", what.groupApi.groupDepth},
                           {"graph", what.groupApi.graphCaptured}};
        return event;
      }
      case ncclProfileCollApi:
        return api_of(what.collApi);
      case ncclProfileP2pApi:
        return api_of(what.p2pApi);
      case ncclProfileKernelLaunch:
        return Event{.kind = EventKind::launch, .name = "launch"};
      default:
        break;
    }
  }
  return std::nullopt;
}

const char* name_of(ncclProfilerEventState_t state) {
  switch (state) {
    case ncclProfilerProxyStepSendGPUWait:
      return "waits for the GPU to give";
    case ncclProfilerProxyStepSendPeerWait_v4:
      return "waits for the peer to be ready";
    case ncclProfilerProxyStepSendWait:
      return "waits for the send";
    case ncclProfilerProxyStepRecvWait:
      return "waits for the receive";
    case ncclProfilerProxyStepRecvFlushWait:
      return "waits for the flush";
    case ncclProfilerProxyStepRecvGPUWait:
      return "waits for the GPU to take";
    case ncclProfilerProxyOpInProgress_v4:
      return "in progress";
    case ncclProfilerGroupStartApiStop:
      return "group has begun";
    case ncclProfilerGroupEndApiStart:
      return "group is ending";
  }
  return nullptr;
}

bool is_of_step(ncclProfilerEventState_t state) {
  return (state >= ncclProfilerProxyStepSendGPUWait && state <= ncclProfilerProxyStepRecvGPUWait) ||
         state == ncclProfilerProxyStepSendPeerWait_v4;
}

// --- entry points ---

ncclResult_t begin(void** context, int* mask, int wanted, const std::string& communicator, int rank,
                   ncclDebugLogger_t log) {
  return guarded(NCCL_INIT, [&] {
    *context = nullptr;
    *mask = 0;
    set_logger(log);
    const std::string path = settings().get_string("TUTTI_NCCL_PROFILE");
    if (path.empty()) return;
    *context = std::make_unique<Recording>(path, communicator, rank).release();
    *mask = wanted;
  });
}

// Starts a recording. v3 provides neither a name nor a rank, so processes and their communicators
// are numbered here.
ncclResult_t begin_of_v3(void** context, int* mask) {
  static std::atomic<int> communicators{0};
  return begin(context, mask, kBeforeV5, cat(::getpid(), "-", communicators++), -1, nullptr);
}

ncclResult_t begin_of_v4(void** context, int* mask, const char*, uint64_t communicator, int, int,
                         int rank, ncclDebugLogger_t log) {
  return begin(context, mask, kBeforeV5, hexadecimal(communicator), rank, log);
}

ncclResult_t begin_of_v5(void** context, uint64_t communicator, int* mask, const char*, int, int,
                         int rank, ncclDebugLogger_t log) {
  return begin(context, mask, kSinceV5, hexadecimal(communicator), rank, log);
}

// Returns the recording of an event; null if the event is skipped. A proxy may work for another
// process of the host (PXN). Then neither the context nor the parent is memory of this process.
template <typename Description>
Recording* recording_of(void* context, const Description& what) {
  if (what.type == ncclProfileProxyOp && what.proxyOp.pid != ::getpid()) return nullptr;
  if (what.type != ncclProfileProxyStep) return static_cast<Recording*>(context);
  return what.parentObj == nullptr ? nullptr : static_cast<Event*>(what.parentObj)->recording;
}

template <typename Description>
ncclResult_t start(void* context, void** handle, Description* what) {
  *handle = nullptr;
  try_to([&] {
    Recording* const recording = recording_of(context, *what);
    if (recording == nullptr) return;
    std::optional<Event> event = event_of(*what);
    if (!event) return;
    event->parent = what->parentObj;
    recording->set_rank(what->rank);
    *handle = recording->start(std::move(*event));
  });
  return ncclSuccess;
}

ncclResult_t stop(void* handle) {
  if (handle != nullptr) try_to([&] { Recording::stop(*static_cast<Event*>(handle)); });
  return ncclSuccess;
}

void enter(void* handle, ncclProfilerEventState_t state, size_t bytes) {
  const char* const name = name_of(state);
  if (handle == nullptr || name == nullptr) return;
  try_to(
      [&] { Recording::enter(*static_cast<Event*>(handle), name, static_cast<int64_t>(bytes)); });
}

ncclResult_t enter_of_v3(void* handle, ncclProfilerEventState_t state,
                         ncclProfilerEventStateArgs_v3_t*) {
  enter(handle, state, 0);
  return ncclSuccess;
}

ncclResult_t enter_of_v4(void* handle, ncclProfilerEventState_t state,
                         ncclProfilerEventStateArgs_v4_t* arguments) {
  const bool has_bytes = arguments != nullptr && is_of_step(state);
  enter(handle, state, has_bytes ? arguments->proxyStep.transSize : 0);
  return ncclSuccess;
}

ncclResult_t end(void* context) {
  if (context == nullptr) return ncclSuccess;
  try_to([&] {
    const std::unique_ptr<Recording> recording(static_cast<Recording*>(context));
    inform(NCCL_INIT, cat("the profile was written to ", recording->write()));
  });
  return ncclSuccess;
}

}  // namespace

}  // namespace tutti::nccl

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {
extern const ncclProfiler_v3_t ncclProfiler_v3 = {
    tutti::nccl::kName, tutti::nccl::begin_of_v3, tutti::nccl::start,
    tutti::nccl::stop,  tutti::nccl::enter_of_v3, tutti::nccl::end};
extern const ncclProfiler_v4_t ncclProfiler_v4 = {
    tutti::nccl::kName, tutti::nccl::begin_of_v4, tutti::nccl::start,
    tutti::nccl::stop,  tutti::nccl::enter_of_v4, tutti::nccl::end};
extern const ncclProfiler_v5_t ncclProfiler_v5 = {
    tutti::nccl::kName, tutti::nccl::begin_of_v5, tutti::nccl::start,
    tutti::nccl::stop,  tutti::nccl::enter_of_v4, tutti::nccl::end};
extern const ncclProfiler_v5_t ncclProfiler_v6 = {
    tutti::nccl::kName, tutti::nccl::begin_of_v5, tutti::nccl::start,
    tutti::nccl::stop,  tutti::nccl::enter_of_v4, tutti::nccl::end};
}
// NOLINTEND(readability-identifier-naming)
