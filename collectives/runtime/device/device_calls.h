// A communicator's calls on memory of GPUs: from the request to the kernel that is put into the
// caller's stream (collectives/gpu). Made when the first such call is; all ranks make it.
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

// Throws Error(invalid_argument) where a buffer is memory that CUDA does not know.
void check_device_memory(const Request& request);

class DeviceCalls {
 public:
  struct Surroundings {
    Shape shape;  // of this rank, in the order of the ranks
    CostModel model;
    std::vector<const Algorithm*> algorithms;  // beside the built-in ones
    gpu::Exchange exchange;
    std::function<void(int peer)> misfit;  // a peer's call is another one; in a thread of its own
  };
  // `device`: this rank's. Throws where kernels cannot run there. connect() comes next.
  DeviceCalls(int device, const Surroundings& surroundings);
  // Collective. gpu::Executor::connect().
  void connect();

  // Returns when the call is in the stream. The request is complete(); `named`: the algorithm, or
  // null. One thread at a time.
  void run(const Request& request, const Algorithm* named, bool canonical, cuda::CUstream stream);
  GpuChoice choose(const Request& request, const Algorithm* named, bool canonical);
  // Collective. gpu::Windows::add(); the window ends with the last copy of what is returned.
  std::shared_ptr<void> register_window(void* data, size_t bytes);
  // Returns when all calls have ended.
  void drain();
  // Ends all kernels. Any thread.
  void stop();
  // Ends all kernels, and tells nobody of misfits any more.
  void end();

 private:
  // What a compiled call depends on.
  struct Kind {
    Request request;  // without its buffers' addresses
    const Algorithm* named = nullptr;
    bool canonical = false;
    Reach reach = Reach::slots;
    bool operator==(const Kind& other) const;
  };
  struct HashOfKind {
    size_t operator()(const Kind& kind) const;
  };
  // A model repeats fewer kinds of calls than this; uneven calls may come in any number.
  static constexpr size_t kMostKept = 512;

  GpuChoice choose(const Kind& kind);
  // Where all ranks' buffers are in windows.
  std::optional<gpu::LentBuffers> lent_buffers(const Request& request) const;
  gpu::DeviceCall& compiled(const Kind& kind);
  std::shared_ptr<gpu::DeviceCall> compile(const Kind& kind, const GpuChoice& choice);
  void make_copy_calls();
  void watch(const std::stop_token& end);

  const int device_;
  const Surroundings surroundings_;
  gpu::Executor executor_;
  std::optional<gpu::CopyCalls> copies_;  // where they are asked for, and by what their ranks meet
  std::shared_ptr<gpu::DeviceCall> meeting_;
  std::optional<GpuPlanner> planner_;
  Recent<Kind, std::shared_ptr<gpu::DeviceCall>, HashOfKind> kept_{kMostKept};
  std::mutex mutex_;  // the watcher's
  std::condition_variable_any ends_;
  std::jthread watcher_;  // last: it uses the rest
};

}  // namespace tutti::internal
