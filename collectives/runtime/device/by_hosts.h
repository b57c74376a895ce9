// Calls on memory of GPUs over several hosts, as many GPUs on each, in parts: kernels move or
// reduce within each host, and each GPU does the like with those at its position on the other
// hosts.
//
//     all_reduce      reduce-scatter inside, all-reduce across, all-gather inside
//     reduce_scatter  reduce-scatter inside for each host's blocks, reduce-scatter across
//     all_gather      all-gather across, all-gather inside of each host's blocks
//
// So only 1 of n bytes leaves a host by each of its n GPUs.
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

// Threads: one at a time.
class ByHosts {
 public:
  // Whether such a call can be made so, and may be worth it.
  static bool can(const Request& request, const Hosts& hosts);

  // `inside`: the ranks of this rank's host; `across`: those at its position on their hosts; both
  // in the order of the ranks. `device`: this rank's.
  ByHosts(int rank, const Hosts& hosts, int device, std::shared_ptr<DevicePeers> inside,
          std::shared_ptr<DevicePeers> across);
  ~ByHosts();

  // Returns when all parts are in the stream.
  void run(const Request& request, const CallOptions& options);

 private:
  void all_reduce(const Request& request, const CallOptions& options);
  void reduce_scatter(const Request& request, const CallOptions& options);
  void all_gather(const Request& request, const CallOptions& options);
  // The blocks of these ranks, each of `count` elements, in a buffer that has all ranks'.
  static Blocks blocks_of(const std::vector<int>& ranks, uint64_t count);
  std::vector<int> on_host(int host) const;

  const int rank_;
  const Hosts hosts_;
  const cuda::Context context_;
  const std::shared_ptr<DevicePeers> inside_;
  const std::shared_ptr<DevicePeers> across_;
  const std::vector<int> at_position_;  // the ranks of `across`
  // The last one is used; the others may be, by captured calls.
  std::vector<cuda::DeviceMemory> partial_;
  cuda::CallOrder order_;  // of calls that use it
};

}  // namespace tutti::internal
