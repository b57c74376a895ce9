// What a collective takes on a network that nobody here owns: its programs played in virtual time.
//
//   rank 0  [send c0 ═══════]            a message takes the latency of its way, and its bytes over
//                 ╲  latency  ╲          the rate that it has among the flows of that moment: links
//   rank 1         [recv c0 ══]→ next    are shared max-min fairly (fair_sharing.h)
//
// Messages of one pair of ranks go one after the other; those to different ranks at the same time.
// Processors cost nothing unless options say so, so that on an idle network the formulas of the
// literature hold: a message of n bytes takes alpha + n * beta. Chunks of a buffer are equally
// long, to fractions of a byte. Receivers have room for whatever comes.
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
  // What a schedule with bytes of its own has no use for:
  double bytes = 0;    // of the buffer; of all blocks, where there are blocks
  int32_t slices = 1;  // each chunk is sent in so many pieces, which overlap
  // Messages take no time: what remains is what ranks compute, and wait for others to compute.
  bool instant_messages = false;
  double overhead_us = 0;  // of a rank's processor, per message that it sends
  double reduce_GBps = std::numeric_limits<double>::infinity();  // of bytes reduced or copied
  std::vector<std::pair<int32_t, double>> stragglers;            // rank, how many us late it begins
  std::vector<int32_t> failed_ranks;
  // Each message's latency and bytes are multiplied by a number between 1 - jitter and 1 + jitter,
  // which depends on the seed and the message only.
  double jitter = 0;
  uint64_t seed = 0;
  // What takes longer is not played on, nor what is too much work (FairSharing::work()).
  double give_up_us = std::numeric_limits<double>::infinity();
  int64_t most_work = std::numeric_limits<int64_t>::max();
  // Called when a step (and slice) ends, with the step's number in the schedule and the time. Once
  // it returns true nothing more is played: the result is what happened up to that time.
  std::function<bool(int32_t step, double us)> stops_after = {};
  Progress progress = {};
};

struct SimulationResult {
  double time_us = 0;   // until the last rank is done; infinite when given up
  double first_us = 0;  // until the first one is
  int32_t last_rank = 0;
  int64_t messages = 0;
  double bytes_sent = 0;       // by all ranks
  std::optional<Arc> busiest;  // the direction of a link that was used most
  double busiest_part = 0;     // of the time and of its bandwidth
};

// Throws Error(rank_died) that names who waits for a rank that failed, and Error(connection_lost)
// that names who is cut off.
SimulationResult simulate(const Schedule& schedule, Network& network,
                          const SimulationOptions& options);

}  // namespace tutti
