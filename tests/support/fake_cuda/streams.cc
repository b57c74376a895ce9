// Implements streams and events.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/fake_cuda/state.h"

namespace fake_cuda {
namespace {

std::shared_ptr<CUstream_st> make_stream(CUcontext context, bool is_blocking) {
  auto stream = std::make_shared<CUstream_st>();
  stream->context = context;
  stream->is_blocking = is_blocking;
  return stream;
}

CUstream_st* thread_stream(CUcontext context) {
  auto& stream = state().thread_streams[{std::this_thread::get_id(), context}];
  if (stream == nullptr) stream = make_stream(context, true);
  return stream.get();
}

template <typename Act>
void for_each_stream(CUcontext context, const Act& act) {
  if (context->legacy != nullptr) act(*context->legacy);
  for (const auto& [handle, stream] : state().streams) {
    if (stream->context == context) act(*stream);
  }
  for (const auto& [key, stream] : state().thread_streams) {
    if (stream->context == context) act(*stream);
  }
}

// Returns the implicit dependencies of the stream's next task: the legacy stream waits for all
// blocking streams, and blocking streams wait for the legacy stream.
std::vector<TaskPointer> implied(CUstream_st& stream) {
  std::vector<TaskPointer> tasks;
  const CUstream_st* const legacy = stream.context->legacy.get();
  const auto add = [&](const TaskPointer& task) {
    if (task != nullptr && !task->is_done()) tasks.push_back(task);
  };
  if (&stream != legacy) {
    if (stream.is_blocking) add(legacy->last);
    return tasks;
  }
  for_each_stream(stream.context, [&](CUstream_st& other) {
    if (&other != legacy && other.is_blocking) add(other.last);
  });
  return tasks;
}

// Fails for the legacy stream if a blocking stream of the context is being captured: captured work
// does not run, so the legacy stream could not wait for it.
CUresult check_legacy(CUstream_st& stream) {
  if (&stream != stream.context->legacy.get()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for_each_stream(stream.context, [&](CUstream_st& other) {
    if (other.is_blocking && other.capturing != nullptr) {
      result = invalidate(*other.capturing, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  });
  return result;
}

CUresult put_node(CUstream_st& stream, Work work) {
  Capturing& capturing = *stream.capturing;
  if (capturing.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capturing.nodes.push_back({std::move(work), stream.frontier, &stream});
  stream.frontier = {capturing.nodes.size() - 1};
  return CUDA_SUCCESS;
}

// Makes a stream join the capture of the event's stream.
CUresult join_capture(CUstream_st& stream, const CUevent_st& event) {
  const std::shared_ptr<Capturing>& capturing = event.capturing;
  if (capturing->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (&stream == stream.context->legacy.get()) {
    return invalidate(*capturing, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  if (stream.capturing != nullptr && stream.capturing != capturing) {
    invalidate(*stream.capturing, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return invalidate(*capturing, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (stream.capturing == nullptr) stream.frontier.clear();
  stream.capturing = capturing;
  for (const size_t node : event.nodes) {
    if (std::ranges::find(stream.frontier, node) == stream.frontier.end()) {
      stream.frontier.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

CUresult find_event(CUevent handle, CUevent_st** found) {
  const auto event = state().events.find(handle);
  if (event == state().events.end()) return CUDA_ERROR_INVALID_HANDLE;
  *found = event->second.get();
  return CUDA_SUCCESS;
}

CUresult find_both(CUstream stream, CUevent event, CUstream_st** stream_found,
                   CUevent_st** event_found) {
  const CUresult result = find_event(event, event_found);
  return result == CUDA_SUCCESS ? find_stream(stream, stream_found) : result;
}

// Finds an event for an operation that captured events do not support.
CUresult find_recorded(CUevent handle, CUevent_st** found) {
  if (const CUresult result = find_event(handle, found); result != CUDA_SUCCESS) return result;
  if ((*found)->capturing == nullptr) return CUDA_SUCCESS;
  return invalidate(*(*found)->capturing, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult check_not_captured(CUstream_st& stream) {
  if (stream.capturing == nullptr) return CUDA_SUCCESS;
  return invalidate(*stream.capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool is_done(const TaskPointer& task) { return task == nullptr || task->is_done(); }

}  // namespace

CUresult find_stream(CUstream handle, CUstream_st** found) {
  CUcontext current = nullptr;
  if (const CUresult result = check_context(&current); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || handle == legacy_stream()) {
    *found = current->legacy.get();
  } else if (handle == per_thread_stream()) {
    *found = thread_stream(current);
  } else {
    const auto stream = state().streams.find(handle);
    if (stream == state().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->second->context != current) return CUDA_ERROR_INVALID_CONTEXT;
    *found = stream->second.get();
  }
  return CUDA_SUCCESS;
}

CUresult put(CUstream handle, Work work, std::vector<TaskPointer> after, TaskPointer* task) {
  CUstream_st* stream = nullptr;
  if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (stream->capturing != nullptr) return put_node(*stream, std::move(work));
  if (const CUresult result = check_legacy(*stream); result != CUDA_SUCCESS) return result;
  for (TaskPointer& other : implied(*stream)) after.push_back(std::move(other));
  stream->last = std::make_shared<Task>(std::move(work), std::move(after));
  stream->queue.put(stream->last);
  if (task != nullptr) *task = stream->last;
  return CUDA_SUCCESS;
}

std::vector<TaskPointer> unfinished(CUcontext context) {
  std::vector<TaskPointer> tasks;
  for_each_stream(context, [&](CUstream_st& stream) {
    if (!is_done(stream.last)) tasks.push_back(stream.last);
  });
  return tasks;
}

void forget_context(CUcontext context) {
  const auto is_of_it = [&](const auto& entry) { return entry.second->context == context; };
  std::erase_if(state().streams, is_of_it);
  std::erase_if(state().thread_streams, is_of_it);
  std::erase_if(state().events, is_of_it);
  for (auto range = state().memory.begin(); range != state().memory.end();) {
    const auto here = range++;
    if (here->second.context == context) free_memory(here);
  }
  context->legacy = nullptr;
  context->peers.clear();
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return in_context([&](CUcontext current) {
    if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    const auto stream = make_stream(current, flags == CU_STREAM_DEFAULT);
    *handle = stream.get();
    state().streams[*handle] = stream;
    return CUDA_SUCCESS;
  });
}

// Work already in the stream still runs.
CUresult cuStreamDestroy_v2(CUstream handle) {
  return initialized([&] {
    const auto stream = state().streams.find(handle);
    if (stream == state().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (const auto& capturing = stream->second->capturing; capturing != nullptr) {
      capturing->is_invalid = true;
      if (capturing->origin == handle) std::erase(state().captures, capturing);
    }
    state().streams.erase(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  TaskPointer end;
  const CUresult result = in_context([&](CUcontext) {
    CUstream_st* stream = nullptr;
    if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_not_captured(*stream); result != CUDA_SUCCESS) return result;
    return put(handle, nullptr, {}, &end);
  });
  if (result == CUDA_SUCCESS) end->wait();
  return result;
}

CUresult cuStreamQuery(CUstream handle) {
  return in_context([&](CUcontext) {
    CUstream_st* stream = nullptr;
    if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_not_captured(*stream); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_legacy(*stream); result != CUDA_SUCCESS) return result;
    return is_done(stream->last) && implied(*stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return initialized([&] {
    const auto stream = state().streams.find(handle);
    if (stream != state().streams.end()) {
      *context = stream->second->context;
      return CUDA_SUCCESS;
    }
    CUstream_st* found = nullptr;  // one of the streams that every context has
    const CUresult result = find_stream(handle, &found);
    if (result == CUDA_SUCCESS) *context = found->context;
    return result;
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  return in_context(
      [&](CUcontext) { return put(handle, [function, user_data] { function(user_data); }); });
}

CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr word, unsigned value, unsigned flags) {
  return in_context([&](CUcontext) {
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || word % sizeof(uint32_t) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return put(handle, [word = reinterpret_cast<uint32_t*>(word), value] {
      const auto is_less = [&] {
        const uint32_t now = std::atomic_ref(*word).load(std::memory_order_acquire);
        return static_cast<int32_t>(now - value) < 0;
      };
      while (is_less()) std::this_thread::yield();
    });
  });
}

CUresult cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr word, unsigned value,
                                 unsigned flags) {
  return in_context([&](CUcontext) {
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || word % sizeof(uint32_t) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return put(handle, [word = reinterpret_cast<uint32_t*>(word), value] {
      std::atomic_ref(*word).store(value, std::memory_order_release);
    });
  });
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent event_handle, unsigned) {
  return in_context([&](CUcontext) {
    CUstream_st* stream = nullptr;
    CUevent_st* event = nullptr;
    const CUresult result = find_both(stream_handle, event_handle, &stream, &event);
    if (result != CUDA_SUCCESS) return result;
    if (event->capturing != nullptr) return join_capture(*stream, *event);
    if (stream->capturing != nullptr) {
      if (event->recorded == nullptr) return CUDA_SUCCESS;
      return invalidate(*stream->capturing, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (event->recorded == nullptr) return CUDA_SUCCESS;
    return put(stream_handle, nullptr, {event->recorded});
  });
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return in_context([&](CUcontext current) {
    auto event = std::make_unique<CUevent_st>();
    event->context = current;
    event->has_timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *handle = event.get();
    state().events[*handle] = std::move(event);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return initialized(
      [&] { return state().events.erase(handle) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult cuEventRecord(CUevent event_handle, CUstream stream_handle) {
  return in_context([&](CUcontext) {
    CUstream_st* stream = nullptr;
    CUevent_st* event = nullptr;
    const CUresult result = find_both(stream_handle, event_handle, &stream, &event);
    if (result != CUDA_SUCCESS) return result;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capturing != nullptr) {
      if (stream->capturing->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      event->capturing = stream->capturing;
      event->nodes = stream->frontier;
      return CUDA_SUCCESS;
    }
    event->capturing = nullptr;
    return put(stream_handle, nullptr, {}, &event->recorded);
  });
}

CUresult cuEventQuery(CUevent handle) {
  return initialized([&] {
    CUevent_st* event = nullptr;
    if (const CUresult result = find_recorded(handle, &event); result != CUDA_SUCCESS) {
      return result;
    }
    if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
    return is_done(event->recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  TaskPointer task;
  const CUresult result = initialized([&] {
    CUevent_st* event = nullptr;
    if (const CUresult result = find_recorded(handle, &event); result != CUDA_SUCCESS) {
      return result;
    }
    const CUresult result = check_no_capture();
    if (result == CUDA_SUCCESS) task = event->recorded;
    return result;
  });
  if (task != nullptr) task->wait();
  return result;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return initialized([&] {
    CUevent_st* start = nullptr;
    CUevent_st* end = nullptr;
    if (const CUresult result = find_recorded(start_handle, &start); result != CUDA_SUCCESS) {
      return result;
    }
    if (const CUresult result = find_recorded(end_handle, &end); result != CUDA_SUCCESS) {
      return result;
    }
    for (const CUevent_st* const event : {start, end}) {
      if (!event->has_timing || event->recorded == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!is_done(start->recorded) || !is_done(end->recorded)) return CUDA_ERROR_NOT_READY;
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->recorded->ended() - start->recorded->ended())
            .count();
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
