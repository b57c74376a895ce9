// A communicator's calls on GPU memory: compiles them to kernels, and enqueues the kernels on the
// caller's stream (collectives/gpu). All ranks create this object at the first such call.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/cost/gpu_planner.h"
#include "collectives/gpu/agreement.h"
#include "collectives/gpu/copy_calls.h"
#include "collectives/gpu/executor.h"
#include "collectives/program/algorithm.h"
#include "collectives/request.h"
#include "collectives/runtime/device/recent.h"

namespace tutti::internal {

// Throws Error(invalid_argument) if a buffer is memory that CUDA did not allocate.
void check_device_memory(const Request& request);

class DeviceCalls {
 public:
  struct Environment {
    Shape shape;  // this rank's shape, in rank order
    CostModel model;
    std::vector<const Algorithm*> algorithms;  // algorithms besides the built-in ones
    gpu::Exchange exchange;
    // Called from a separate thread with a peer from which a message of another call has arrived.
    std::function<void(int peer)> on_mismatch;
  };
  // Prepares calls. `device`: this rank's GPU. Throws if kernels cannot run there. Call connect()
  // next.
  DeviceCalls(int device, const Environment& surroundings);
  // Connects the ranks (gpu::Executor::connect()). Collective.
  void connect();

  // Enqueues the call on the stream and returns. The request is complete(); `named` is the
  // requested algorithm or null. Not thread-safe.
  void run(const Request& request, const Algorithm* named, bool canonical, cuda::CUstream stream);
  GpuChoice choose(const Request& request, const Algorithm* named, bool canonical);
  // Registers a window (gpu::Windows::add()). The registration ends with the last copy of the
  // returned pointer. Collective.
  std::shared_ptr<void> register_window(void* data, size_t bytes);
  // Blocks until all calls have ended.
  void drain();
  // Terminates all kernels. Thread-safe.
  void stop();
  // Terminates all kernels and stops reporting mismatches.
  void end();

 private:
  // All properties on which a compiled call depends.
  struct Kind {
    Request request;  // the addresses of its buffers are not compared
    const Algorithm* named = nullptr;
    bool canonical = false;
    Reach reach = Reach::slots;
    bool operator==(const Kind& other) const;
  };
  struct HashOfKind {
    size_t operator()(const Kind& kind) const;
  };
  // Maximum number of cached calls; a model repeats fewer kinds of calls. The cache needs a limit,
  // because v-variants may have other block sizes in each call, and each set of sizes is a Kind.
  static constexpr size_t kMostKept = 512;

  GpuChoice choose(const Kind& kind);
  // Returns the buffers if all ranks' buffers are in windows; otherwise nullopt.
  std::optional<gpu::LentBuffers> lent_buffers(const Request& request) const;
  gpu::DeviceCall& compiled(const Kind& kind);
  std::shared_ptr<gpu::DeviceCall> compile(const Kind& kind, const GpuChoice& choice);
  void make_copy_calls();
  void watch(const std::stop_token& end);

  const int device_;
  const Environment surroundings_;
  gpu::Executor executor_;
  // Calls by copy engines, if enabled (TUTTI_GPU_PROTOCOL=engines); meeting_ is their barrier.
  std::optional<gpu::CopyCalls> copies_;
  std::shared_ptr<gpu::DeviceCall> meeting_;
  std::optional<GpuPlanner> planner_;
  Recent<Kind, std::shared_ptr<gpu::DeviceCall>, HashOfKind> kept_{kMostKept};
  std::mutex mutex_;  // guards the watcher's state
  std::condition_variable_any ends_;
  std::jthread watcher_;  // last, because it uses the other members
};

}  // namespace tutti::internal
