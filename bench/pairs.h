// Measures latency and bandwidth between pairs of ranks, by send and recv.
#pragma once

#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace tutti::bench {

// Pairs of ranks that are measured at the same time, the lower rank first. A rank is in at most one
// of them.
using Round = std::vector<std::pair<int, int>>;

// The results, which are on rank 0; 0 for pairs that were not measured.
struct PairTimes {
  int ranks = 0;
  std::vector<double> latency_us;  // half of a round trip, by lower rank, then by the higher one
  std::vector<double> GBps;        // bandwidth in GB/s, by sender, then by receiver

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
