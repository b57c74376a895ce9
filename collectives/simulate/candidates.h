// Which algorithms are worth a simulation: those that run on these ranks, give all of them the same
// bits, and are not too long, the most promising first.
#pragma once

#include <string>
#include <vector>

#include "collectives/simulate/schedule.h"
#include "topology/networks/network.h"

namespace tutti {

inline constexpr int kManyRanks = 10'000;

struct SimulationCandidate {
  const Algorithm* algorithm = nullptr;
  std::string excluded;   // why it is none; empty: it is
  bool too_long = false;  // that is why
  // As if all ranks did what the busiest of a few does, without congestion; from kManyRanks ranks
  // on, extrapolated from what a few of them take when they are played.
  double rough_us = 0;
};

// Sorted by rough_us, those that are excluded last. shape.rank does not matter.
std::vector<SimulationCandidate> simulation_candidates(Collective collective, const Shape& shape,
                                                       double bytes, Network& network,
                                                       int64_t most_steps);

}  // namespace tutti
