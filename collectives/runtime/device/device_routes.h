// Selects the route of a communicator's calls on GPU memory:
//
//   kernels    among ranks of one host whose GPUs access each other's memory (device_calls.h)
//   by hosts   all_reduce, reduce_scatter and all_gather over several such hosts: kernels within
//              each host; GPUs at one position communicate between hosts (by_hosts.h)
//   staged     all other calls: through host memory and its transports (staged_calls.h)
//
// All ranks decide alike. A route's resources are created, by all ranks, at the first call that
// takes it.
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
  Request request;                   // complete()
  const Algorithm* named = nullptr;  // requested by the caller
  bool canonical = false;
  const CallOptions& options;

  cuda::CUstream stream() const { return static_cast<cuda::CUstream>(options.stream.handle); }
};

// Not thread-safe except stop().
class DeviceRoutes {
 public:
  // Services of the communicator that the routes use.
  struct Means {
    DeviceCalls::Surroundings of_kernels;
    Hosts hosts;
    std::function<std::shared_ptr<DevicePeers>(int color, int key)> split;
    StagedCalls::Start start;
    std::function<void(const Error&)> failed;  // aborts all ranks
    std::function<std::optional<Error>()> aborted;
  };
  // `device`: this rank's GPU.
  DeviceRoutes(int device, Means means);

  // Returns when the call is enqueued on its stream.
  void run(const DeviceRequest& call);
  // Collective. Returns null if calls do not run as kernels, the only route that uses windows.
  std::shared_ptr<void> register_window(void* data, size_t bytes);
  // Collective, as is run().
  std::string algorithm_of(const DeviceRequest& call);
  // Objects that may have to outlive the communicator.
  struct Remains {
    std::unique_ptr<DeviceCalls> kernels;  // other ranks' kernels may still write to its memory
    std::unique_ptr<StagedCalls> staged;
    bool drained = true;  // if false, streams may still submit calls to `staged`
  };
  // Blocks until all calls have ended or CUDA has failed. Nothing can run afterwards.
  Remains end();
  // Terminates all calls, also those of the communicators made for the routes. Thread-safe.
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

  std::mutex mutex_;  // held to set one of the pointers, or to stop its target
  std::unique_ptr<DeviceCalls> kernels_;
  std::shared_ptr<DevicePeers> on_host_;  // the same ranks, for staged collectives only
  std::shared_ptr<DevicePeers> inside_;   // the ranks of this host
  std::shared_ptr<DevicePeers> across_;   // the ranks at this rank's position on all hosts
  std::optional<ByHosts> by_hosts_;       // uses inside_ and across_
  std::unique_ptr<StagedCalls> staged_;   // last: it uses the communicators
};

}  // namespace tutti::internal
