// Calls on GPU memory over several hosts with equally many GPUs each, done in parts: kernels move
// or reduce data within each host, and each GPU communicates with the GPUs at its position on the
// other hosts.
//
//     all_reduce      reduce-scatter inside a host, all-reduce across hosts, all-gather inside
//     reduce_scatter  for each host's blocks a reduce-scatter inside, then reduce-scatter across
//     all_gather      all-gather across, then for each host's blocks an all-gather inside
//
// So each of a host's n GPUs sends only 1/n of the bytes to other hosts.
#pragma once

#include <memory>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "collectives/communicator.h"
#include "collectives/request.h"
#include "collectives/runtime/device/device_peers.h"
#include "topology/domain.h"

namespace tutti::internal {

// Runs the parts of these calls on one rank. Not thread-safe.
class ByHosts {
 public:
  // Returns true if the call can be done in parts, and may then be faster than a staged call.
  static bool can(const Request& request, const Hosts& hosts);

  // Prepares calls. `inside`: the ranks of this rank's host; `across`: the ranks at this rank's
  // position on all hosts; both in rank order. `device`: this rank's GPU.
  ByHosts(int rank, const Hosts& hosts, int device, std::shared_ptr<DevicePeers> inside,
          std::shared_ptr<DevicePeers> across);
  ~ByHosts();

  // Enqueues all parts on the stream and returns.
  void run(const Request& request, const CallOptions& options);

 private:
  void all_reduce(const Request& request, const CallOptions& options);
  void reduce_scatter(const Request& request, const CallOptions& options);
  void all_gather(const Request& request, const CallOptions& options);
  // Returns the blocks of these ranks (`count` elements each) in a buffer with all ranks' blocks.
  static Blocks blocks_of(const std::vector<int>& ranks, uint64_t count);
  std::vector<int> on_host(int host) const;

  const int rank_;
  const Hosts hosts_;
  const cuda::Context context_;
  const std::shared_ptr<DevicePeers> inside_;
  const std::shared_ptr<DevicePeers> across_;
  const std::vector<int> at_position_;  // the ranks at this rank's position on all hosts
  // Memory for partial results. New calls use the last entry; captured calls may use earlier ones.
  std::vector<cuda::DeviceMemory> partial_;
  cuda::CallOrder order_;  // order of the calls that use partial_
};

}  // namespace tutti::internal
