// Computes the time of programs that are too long to simulate step by step but whose rounds are all
// alike: rings and direct all-to-alls. The paths of one round determine the time.
//
//   ring         n ranks forward what has arrived, round after round. The slowest sequence of
//                consecutive hops determines the time, or the load of the busiest link if that is
//                slower
//   all-to-all   each rank sends to all others at the same time. The load of the busiest links
//                determines the time; on uniform networks it is computed from a few distances
//                between ranks
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/program/algorithm.h"
#include "collectives/simulate/simulate.h"
#include "topology/networks/network.h"

namespace tutti {

struct Rounds {
  int64_t count = 0;
  double bytes = 0;          // bytes that each rank sends in one round
  bool to_everyone = false;  // false: each rank sends to the next one
};

// Returns the rounds of a ring or of a direct all-to-all; nullopt for other programs. `bytes`: as
// SimulationOptions::bytes.
std::optional<Rounds> rounds_of(const Algorithm& algorithm, const Shape& shape, double bytes);

// Computes the time on a network without failures. Throws Error(connection_lost) if two ranks have
// no path.
SimulationResult play_rounds(const Rounds& rounds, Network& network, int ranks);

}  // namespace tutti
