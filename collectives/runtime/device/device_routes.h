// Selects the route of a communicator's calls on GPU memory:
//
//   kernels    among ranks of one host whose GPUs access each other's memory (device_calls.h)
//   by hosts   all_reduce, reduce_scatter and all_gather over several hosts: kernels within each
//              host, staged calls between the GPUs at equal positions of all hosts (by_hosts.h)
//   staged     all other calls: through host memory and its transports (staged_calls.h)
//
// All ranks make the same decision. A route's resources are created, by all ranks, at the first
// call that takes it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/cost/cost_model.h"
#include "collectives/program/algorithm.h"
#include "collectives/request.h"
#include "collectives/runtime/device/by_hosts.h"
#include "collectives/runtime/device/device_calls.h"
#include "collectives/runtime/device/device_peers.h"
#include "collectives/runtime/device/staged_calls.h"
#include "topology/domain.h"

namespace tutti::internal {

// A call on GPU memory.
struct DeviceRequest {
  Request request;                   // the request, which is complete()
  const Algorithm* named = nullptr;  // algorithm that the caller requested; null: none
  bool canonical = false;
  const CallOptions& options;

  cuda::CUstream stream() const { return static_cast<cuda::CUstream>(options.stream.handle); }
};

// The routes. Not thread-safe except stop().
class DeviceRoutes {
 public:
  // Services of the communicator that the routes use.
  struct Means {
    DeviceCalls::Environment of_kernels;
    Hosts hosts;
    std::function<std::shared_ptr<DevicePeers>(int color, int key)> split;
    StagedCalls::Start start;
    std::function<void(const Error&)> failed;  // aborts all ranks
    std::function<std::optional<Error>()> aborted;
  };
  // Prepares the routes. `device`: this rank's GPU.
  DeviceRoutes(int device, Means means);

  // Enqueues the call on its stream and returns.
  void run(const DeviceRequest& call);
  // Registers a window. Collective. Returns null if calls do not run as kernels, because no other
  // route uses windows.
  std::shared_ptr<void> register_window(void* data, size_t bytes);
  // Returns the algorithm that the call would use. Collective, as is run().
  std::string algorithm_of(const DeviceRequest& call);
  // Objects that must outlive the communicator in some cases.
  struct KeptAlive {
    // Null if there are none. Other ranks' kernels may still write to the memory of this object.
    std::unique_ptr<DeviceCalls> kernels;
    std::unique_ptr<StagedCalls> staged;
    bool drained = true;  // if false, streams may still submit calls to `staged`
  };
  // Blocks until all calls have ended or CUDA has failed. Make no call afterwards.
  KeptAlive end();
  // Terminates all calls, including calls of the communicators made for the routes. Thread-safe.
  void stop(const Error& error);

 private:
  enum class Route { kernels, by_hosts, staged };
  Route route_of(const DeviceRequest& call);
  bool may_go_by_hosts(const DeviceRequest& call) const;
  void make_kernels();
  StagedCalls& staged();
  DevicePeers& on_host();
  ByHosts& by_hosts();
  template <typename Pointer>
  void keep(Pointer& member, Pointer made);

  const int device_;
  const Means means_;
  bool tried_kernels_ = false;

  std::mutex mutex_;  // held to set one of the pointers, or to stop the object that it points to
  std::unique_ptr<DeviceCalls> kernels_;
  // Communicator of the same ranks, for staged collectives only.
  std::shared_ptr<DevicePeers> on_host_;
  std::shared_ptr<DevicePeers> inside_;  // communicator of the ranks of this host
  // Communicator of the ranks at this rank's position on all hosts.
  std::shared_ptr<DevicePeers> across_;
  std::optional<ByHosts> by_hosts_;      // uses inside_ and across_
  std::unique_ptr<StagedCalls> staged_;  // last member, because it uses the communicators
};

}  // namespace tutti::internal
