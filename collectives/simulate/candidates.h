// Selects the algorithms worth simulating. They support these ranks, give all ranks results with
// the same bits, and are not too long. The most promising come first.
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
  // With kManyRanks or more ranks, the estimate is extrapolated from simulations of fewer ranks, if
  // the algorithm supports those.
  double rough_us = 0;
};

// Returns all algorithms sorted by rough_us, the excluded ones last. shape.rank is not used.
std::vector<SimulationCandidate> simulation_candidates(Collective collective, const Shape& shape,
                                                       double bytes, Network& network,
                                                       int64_t most_steps);

}  // namespace tutti
