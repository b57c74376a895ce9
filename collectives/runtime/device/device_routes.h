// Which way a communicator's calls on memory of GPUs go:
//
//   kernels    among ranks of one host whose GPUs reach each other's memory (device_calls.h)
//   by hosts   all_reduce, reduce_scatter and all_gather over several such hosts: kernels within
//   each
//              host, and between hosts the GPUs of one position (by_hosts.h)
//   staged     all else: through the host's memory and its transports (staged_calls.h)
//
// All ranks decide alike. What a way needs is made when the first call goes it, by all ranks.
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

// A call on memory of GPUs.
struct DeviceRequest {
  Request request;                   // complete
  const Algorithm* named = nullptr;  // that was asked for
  bool canonical = false;
  const CallOptions& options;

  cuda::CUstream stream() const { return static_cast<cuda::CUstream>(options.stream.handle); }
};

// Threads: one at a time, but for stop().
class DeviceRoutes {
 public:
  // A communicator's own means.
  struct Means {
    DeviceCalls::Surroundings of_kernels;
    Hosts hosts;
    std::function<std::shared_ptr<DevicePeers>(int color, int key)> split;
    StagedCalls::Start start;
    std::function<void(const Error&)> failed;  // tells all ranks
    std::function<std::optional<Error>()> aborted;
  };
  // `device`: this rank's.
  DeviceRoutes(int device, Means means);

  // Returns when the call is in its stream.
  void run(const DeviceRequest& call);
  // Collective. Null where calls do not go by kernels, to which alone it is of use.
  std::shared_ptr<void> register_window(void* data, size_t bytes);
  // Collective, as run() is.
  std::string algorithm_of(const DeviceRequest& call);
  // What may have to outlive the communicator.
  struct Remains {
    std::unique_ptr<DeviceCalls> kernels;  // other ranks' kernels may still write to their memory
    std::unique_ptr<StagedCalls> staged;   // and where not all calls are over,
    bool drained = true;                   // streams may hand over calls to this
  };
  // Returns when all calls have ended, or CUDA has failed. After it nothing can be run.
  Remains end();
  // Ends all calls, and those of the communicators that were made for them. Any thread.
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

  std::mutex mutex_;  // of whoever sets a pointer, or stops what it points to
  std::unique_ptr<DeviceCalls> kernels_;
  std::shared_ptr<DevicePeers> on_host_;  // the same ranks, for staged collectives alone
  std::shared_ptr<DevicePeers> inside_;   // the ranks of this host
  std::shared_ptr<DevicePeers> across_;   // those at this rank's position on their hosts
  std::optional<ByHosts> by_hosts_;       // of these
  std::unique_ptr<StagedCalls> staged_;   // last: it uses the communicators
};

}  // namespace tutti::internal
