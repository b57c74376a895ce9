// Measures latency and bandwidth between pairs of ranks, by send and recv.
#pragma once

#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace tutti::bench {

// Pairs of ranks that are measured at the same time, the lower rank first. A rank is in at most one
// pair.
using Round = std::vector<std::pair<int, int>>;

// The results, on rank 0. Pairs that were not measured have 0.
struct PairTimes {
  int ranks = 0;
  // half of a round trip, indexed by lower rank, then by higher rank
  std::vector<double> latency_us;
  std::vector<double> GBps;  // bandwidth in GB/s, indexed by sender, then by receiver

  double latency(int a, int b) const { return latency_us[at(a < b ? a : b, a < b ? b : a)]; }
  double bandwidth(int from, int to) const { return GBps[at(from, to)]; }

 private:
  size_t at(int row, int column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(ranks) + static_cast<size_t>(column);
  }
};

// Collective. Measures one round after the other. All ranks must pass the same rounds. Returns the
// result on rank 0, and an empty one on the others. A pair takes about a second on a slow network
// and some milliseconds on one host.
PairTimes measure_pairs(Communicator& comm, const std::vector<Round>& rounds);

}  // namespace tutti::bench
