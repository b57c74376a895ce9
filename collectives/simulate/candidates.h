// Selects the algorithms worth simulating: those that support these ranks, give all ranks the same
// bits and are not too long, the most promising first.
#pragma once

#include <string>
#include <vector>

#include "collectives/simulate/schedule.h"
#include "topology/networks/network.h"

namespace tutti {

inline constexpr int kManyRanks = 10'000;

struct SimulationCandidate {
  const Algorithm* algorithm = nullptr;
  std::string excluded;   // why the algorithm is excluded; empty for a candidate
  bool too_long = false;  // true: excluded because it is too long
  // Estimate without congestion, as if all ranks did what the busiest of a few sampled ranks does.
  // From kManyRanks ranks on, it is extrapolated from a simulation of fewer ranks.
  double rough_us = 0;
};

// Returns all algorithms sorted by rough_us, the excluded ones last. shape.rank is not used.
std::vector<SimulationCandidate> simulation_candidates(Collective collective, const Shape& shape,
                                                       double bytes, Network& network,
                                                       int64_t most_steps);

}  // namespace tutti
