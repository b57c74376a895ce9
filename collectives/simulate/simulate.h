// Simulates a collective on a network that need not exist: its programs are executed in virtual
// time.
//
//   rank 0  [send c0 ═══════]            a message takes its path's latency plus bytes / rate;
//                 ╲  latency  ╲          the messages in flight share the links max-min fairly
//   rank 1         [recv c0 ══]→ next    (fair_sharing.h)
//
// Messages from one rank to another are sent one after another; messages to different ranks
// overlap. Processors take no time unless options say so, so on an idle network the formulas of the
// literature hold: a message of n bytes takes alpha + n * beta. All chunks of a buffer have equal
// length, which may be a fraction of a byte. Receivers have unlimited buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/simulate/schedule.h"
#include "topology/networks/network.h"

namespace tutti {

struct SimulationOptions {
  // A joint schedule ignores `bytes` and `slices`, because it has the bytes of each step.
  double bytes = 0;    // buffer size; size of all blocks if there are blocks
  int32_t slices = 1;  // pieces of each chunk, which are pipelined
  // True if messages take no time. The result is then the time of computation, and of waiting for
  // other ranks' computation.
  bool instant_messages = false;
  double overhead_us = 0;                                        // processor time per message sent
  double reduce_GBps = std::numeric_limits<double>::infinity();  // rate of reductions and copies
  std::vector<std::pair<int32_t, double>> stragglers;            // rank, start delay in us
  std::vector<int32_t> failed_ranks;
  // Each message's latency and bytes are multiplied by a factor in [1 - jitter, 1 + jitter] that
  // depends only on the seed and the message.
  double jitter = 0;
  uint64_t seed = 0;
  // Limits on the virtual time and on the work (FairSharing::work()), at which the simulation
  // stops.
  double give_up_us = std::numeric_limits<double>::infinity();
  int64_t most_work = std::numeric_limits<int64_t>::max();
  // Called when a step (and slice) ends, with the step's index in the schedule and the time. If it
  // returns true, the simulation stops, and the result covers all that happened until then.
  std::function<bool(int32_t step, double us)> stops_after = {};
  Progress progress = {};
};

struct SimulationResult {
  double time_us = 0;   // time until the last rank is done; infinite if a limit was reached
  double first_us = 0;  // time until the first rank is done
  int32_t last_rank = 0;
  int64_t messages = 0;
  double bytes_sent = 0;       // bytes sent by all ranks together
  std::optional<Arc> busiest;  // most heavily used link, with direction
  double busiest_part = 0;     // fraction of that link's bandwidth that was used
};

// Simulates the schedule. Throws an Error(rank_died) that names the ranks that wait for a failed
// rank, or an Error(connection_lost) that names the ranks that are cut off.
SimulationResult simulate(const Schedule& schedule, Network& network,
                          const SimulationOptions& options);

}  // namespace tutti
