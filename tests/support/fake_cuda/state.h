// State of the fake driver: contexts, memory, streams, events, captures, graphs. The handles of
// cuda.h refer to these objects.
//
// One lock guards the whole state. Threads wait for work without holding the lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/abi.h"
#include "base/fd.h"
#include "tests/support/fake_cuda/physical.h"
#include "tests/support/fake_cuda/queue.h"
#include "tests/support/fake_cuda/task.h"

using namespace tutti::cuda;  // NOLINT: the names are those of cuda.h

namespace fake_cuda {

inline constexpr size_t kDeviceMemory = size_t{64} << 30;

// Captured work, and the graph's nodes that precede it.
struct Node {
  Work work;
  std::vector<size_t> after;
  CUstream lane = nullptr;  // stream from which the work was captured
};
using Nodes = std::vector<Node>;

struct Capturing {
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool is_invalid = false;
  Nodes nodes;
};

}  // namespace fake_cuda

struct CUctx_st {
  int device = 0;
  int holds = 0;  // number of holders; 0: the context does not exist
  std::set<CUcontext> peers;
  std::shared_ptr<CUstream_st> legacy;
};

struct CUstream_st {
  CUcontext context = nullptr;
  bool is_blocking = true;  // true: this stream and the legacy stream wait for each other
  fake_cuda::Queue queue;
  fake_cuda::TaskPointer last;
  std::shared_ptr<fake_cuda::Capturing> capturing;
  std::vector<size_t> frontier;  // nodes that the next node follows
};

struct CUevent_st {
  CUcontext context = nullptr;
  bool has_timing = true;
  fake_cuda::TaskPointer recorded;
  // set if the event was recorded in a captured stream; it then follows `nodes`
  std::shared_ptr<fake_cuda::Capturing> capturing;
  std::vector<size_t> nodes;
};

struct CUgraph_st {
  std::shared_ptr<const fake_cuda::Nodes> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const fake_cuda::Nodes> nodes;
  fake_cuda::TaskPointer last;  // latest launch of this graph, for which the next launch waits
};

namespace fake_cuda {

struct Range {
  enum class Kind : int { device, pinned, opened, mapped };
  Kind kind = Kind::device;
  CUcontext context = nullptr;
  int device = 0;
  size_t size = 0;  // as requested
  tutti::Fd file = {};
  int opens = 0;                            // only Kind::opened
  std::string handle = {};                  // only Kind::opened
  std::shared_ptr<Physical> physical = {};  // only Kind::mapped
  std::set<int> accessible = {};            // only Kind::mapped: devices with access
};

// The object behind a CUmemGenericAllocationHandle.
struct Handle {
  std::shared_ptr<Physical> physical;
  bool is_imported = false;
};

struct State {
  std::mutex mutex;
  pid_t process = 0;  // process that called cuInit; a process forked from it has no CUDA
  std::vector<std::unique_ptr<CUctx_st>> contexts;  // primary context of each device
  std::map<uintptr_t, Range> memory;
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  CUmemGenericAllocationHandle last_handle = 0;
  std::map<uintptr_t, size_t> reservations;  // reserved address ranges
  std::map<CUstream, std::shared_ptr<CUstream_st>> streams;
  std::map<std::pair<std::thread::id, CUcontext>, std::shared_ptr<CUstream_st>> thread_streams;
  std::map<CUevent, std::unique_ptr<CUevent_st>> events;
  std::map<CUgraph, std::unique_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> graph_execs;
  std::vector<std::shared_ptr<Capturing>> captures;
};

State& state();  // never destroyed, because threads may use it until the process ends

// The following functions require the lock:
CUresult check_initialized();
CUresult check_context(CUcontext* current);
CUresult find_stream(CUstream handle, CUstream_st** found);
// Called by driver calls that may wait for other streams. If an active stream capture forbids them,
// invalidates that capture and returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
CUresult check_no_capture();
CUresult invalidate(Capturing& capturing, CUresult why);
// Enqueues work on a stream and stores its task in `task`. While the stream is captured, adds the
// work to the graph instead, and leaves `task` unchanged.
CUresult put(CUstream handle, Work work, std::vector<TaskPointer> after = {},
             TaskPointer* task = nullptr);
std::vector<TaskPointer> unfinished(CUcontext context);
std::map<uintptr_t, Range>::iterator range_of(CUdeviceptr address);
size_t used_bytes(int device);
Physical* find_physical(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle add_handle(std::shared_ptr<Physical> physical, bool is_imported);
bool handle_types_are_known(unsigned long long types);
void free_memory(std::map<uintptr_t, Range>::iterator range);
void forget_context(CUcontext context);

// Delays the start of a kernel or copy by up to FAKE_CUDA_DELAY_US.
void delay();
void run_nodes(const Nodes& nodes);

// Returns a numeric setting of the environment.
int setting(const char* name, int fallback);

// Takes the lock, and calls `act` if the driver is initialized. in_context() also requires a
// current context.
template <typename Act>
CUresult initialized(const Act& act) {
  const std::lock_guard lock(state().mutex);
  const CUresult result = check_initialized();
  return result == CUDA_SUCCESS ? act() : result;
}

template <typename Act>
CUresult in_context(const Act& act) {
  const std::lock_guard lock(state().mutex);
  CUcontext current = nullptr;
  const CUresult result = check_context(&current);
  return result == CUDA_SUCCESS ? act(current) : result;
}

inline void wait_for(const std::vector<TaskPointer>& tasks) {
  for (const TaskPointer& task : tasks) task->wait();
}

}  // namespace fake_cuda
