// Implements the capture of streams into graphs, and the replay of graphs.
#include <algorithm>

#include "tests/support/fake_cuda/state.h"

namespace fake_cuda {
namespace {

// Returns true if all work captured from other streams precedes the origin's end.
bool is_joined(const Capturing& capturing) {
  std::vector<bool> is_before(capturing.nodes.size(), false);
  std::vector<size_t> to_visit = capturing.origin->frontier;
  while (!to_visit.empty()) {
    const size_t node = to_visit.back();
    to_visit.pop_back();
    if (is_before[node]) continue;
    is_before[node] = true;
    const std::vector<size_t>& after = capturing.nodes[node].after;
    to_visit.insert(to_visit.end(), after.begin(), after.end());
  }
  return std::ranges::all_of(is_before, [](bool before) { return before; });
}

void leave(const std::shared_ptr<Capturing>& capturing) {
  for (const auto& [handle, stream] : state().streams) {
    if (stream->capturing == capturing) stream->capturing = nullptr;
  }
  for (const auto& [key, stream] : state().thread_streams) {
    if (stream->capturing == capturing) stream->capturing = nullptr;
  }
  for (const auto& [handle, event] : state().events) {
    if (event->capturing == capturing) event->capturing = nullptr;
  }
  std::erase(state().captures, capturing);
}

// This thread's capture mode.
CUstreamCaptureMode& thread_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult check_may_end(const CUstream_st& stream) {
  if (stream.capturing == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const Capturing& capturing = *stream.capturing;
  if (capturing.origin != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capturing.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capturing.thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult invalidate(Capturing& capturing, CUresult why) {
  capturing.is_invalid = true;
  return why;
}

CUresult check_no_capture() {
  CUresult result = CUDA_SUCCESS;
  if (thread_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
  const bool minds_others = thread_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
  for (const std::shared_ptr<Capturing>& capturing : state().captures) {
    const bool is_mine = capturing->thread == std::this_thread::get_id();
    const bool forbids =
        (capturing->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && (is_mine || minds_others)) ||
        (capturing->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && is_mine);
    if (forbids) result = invalidate(*capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

// Runs the nodes of each captured stream in a separate thread, so that missing dependencies between
// streams are noticed.
void run_nodes(const Nodes& nodes) {
  std::vector<TaskPointer> tasks;
  std::map<CUstream, std::vector<TaskPointer>> lanes;
  for (const Node& node : nodes) {
    std::vector<TaskPointer> after;
    for (const size_t other : node.after) after.push_back(tasks[other]);
    tasks.push_back(std::make_shared<Task>(node.work, std::move(after)));
    lanes[node.lane].push_back(tasks.back());
  }
  const auto run = [](const std::vector<TaskPointer>& lane) {
    for (const TaskPointer& task : lane) task->run();
  };
  if (lanes.empty()) return;
  std::vector<std::jthread> threads;
  for (auto lane = std::next(lanes.begin()); lane != lanes.end(); ++lane) {
    threads.emplace_back(run, lane->second);
  }
  run(lanes.begin()->second);
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return in_context([&](CUcontext) {
    CUstream_st* stream = nullptr;
    if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
    *status = stream->capturing == nullptr    ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capturing->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return in_context([&](CUcontext current) {
    CUstream_st* stream = nullptr;
    if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
    if (stream == current->legacy.get()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capturing != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    stream->capturing = std::make_shared<Capturing>();
    stream->capturing->origin = stream;
    stream->capturing->mode = mode;
    stream->capturing->thread = std::this_thread::get_id();
    stream->frontier.clear();
    state().captures.push_back(stream->capturing);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return in_context([&](CUcontext) {
    *graph = nullptr;
    CUstream_st* stream = nullptr;
    if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_may_end(*stream); result != CUDA_SUCCESS) return result;
    const std::shared_ptr<Capturing> capturing = stream->capturing;
    const bool joined = is_joined(*capturing);
    leave(capturing);
    if (capturing->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    auto made = std::make_unique<CUgraph_st>();
    made->nodes = std::make_shared<const Nodes>(std::move(capturing->nodes));
    *graph = made.get();
    state().graphs[*graph] = std::move(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return initialized([&] {
    if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_mode());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return initialized(
      [&] { return state().graphs.erase(graph) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  return in_context([&](CUcontext) {
    const auto found = state().graphs.find(graph);
    if (found == state().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_unique<CUgraphExec_st>();
    made->nodes = found->second->nodes;
    *exec = made.get();
    state().graph_execs[*exec] = std::move(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return in_context([&](CUcontext) {
    const auto found = state().graph_execs.find(exec);
    if (found == state().graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
    std::vector<TaskPointer> after;
    if (exec->last != nullptr) after.push_back(exec->last);
    return put(
        stream, [nodes = exec->nodes] { run_nodes(*nodes); }, std::move(after), &exec->last);
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return initialized([&] {
    return state().graph_execs.erase(exec) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // extern "C"
