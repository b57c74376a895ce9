// Schedules the computation and messages of data-parallel ranks for a number of updates, for each
// way of synchronization (training/parallel/sync_options.h).
//
//   allreduce, local,     rank 0  [step][step]─┐           all-reduces of gradients or values after
//   diloco, easgd, fed*,  rank 1  [step  ][step  ]─[sum]─  each, or each K-th, update
//   gossip:complete
//
//   gossip, sgp, adpsgd   rank 0  [step]──values──┐        a rank continues when the values that it
//                         rank 1  [step  ]────────[step]   takes have arrived (averaging/peers.h)
//
//   ps, ssp, async        worker  [step]─gradients┐  ┌values─[step]      servers and their answers:
//                         server                  └──┘                   servers/server.h
//
// A message to a server has the gradients of the server's shard, and an answer has the shard's
// values. A server that is also a worker sends itself no messages. All-reduces begin after the
// whole backward.
//
// Limits: the schedule ignores the time of updates and of averaging, copies in memory, overlap of
// backward with gradient sums, the 64 bits of secure sums, and headers.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/simulate/schedule.h"
#include "topology/domain.h"
#include "training/parallel/servers/roles.h"
#include "training/parallel/sync_options.h"

namespace tutti::training {

struct SyncWork {
  SyncOptions way;
  int64_t updates = 1;
  // For each rank, time in microseconds of forward and backward of all its micro-batches of a step.
  std::vector<double> step_us;
  double bytes = 0;   // bytes of all gradients; all values have as many bytes
  uint64_t seed = 0;  // seed of random peers
  // Sums gradients or values over all ranks. May be null for ways without all-reduces.
  const Algorithm* all_reduce = nullptr;

  int ranks() const { return static_cast<int>(step_us.size()); }
  Roles roles() const { return roles_of(way, ranks()); }
};

struct SyncSchedule {
  Schedule schedule;
  // For each worker, the schedule's steps at which the worker's training steps end, ascending.
  std::vector<std::vector<int32_t>> ends;
};

// Returns the schedule. `steps`: number of training steps of each worker, which must be
// work.updates except with `async`. `places`: locations of the ranks. Throws
// Error(invalid_argument) if there are no workers or for invalid numbers, Error(unsupported) for
// more than `most_steps` steps.
SyncSchedule make_sync_schedule(const SyncWork& work, const std::vector<int64_t>& steps,
                                const std::vector<Place>& places, int64_t most_steps);

}  // namespace tutti::training
