// Computes the time of programs that are too long to simulate step by step but whose rounds are all
// alike: rings and direct all-to-alls. The paths of one round determine the time.
//
//   ring         n ranks pass on what arrived, round after round: the slowest sequence of
//                consecutive hops, or the load of the busiest link if that is slower
//   all-to-all   each rank sends to all others at the same time: the load of the busiest links. On
//                uniform networks a few distances between ranks represent all
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/program/algorithm.h"
#include "collectives/simulate/simulate.h"
#include "topology/networks/network.h"

namespace tutti {

struct Rounds {
  int64_t count = 0;
  double bytes = 0;          // sent by each rank in one round
  bool to_everyone = false;  // otherwise each rank sends to the next one
};

// Returns nullopt for other programs. `bytes`: as SimulationOptions::bytes.
std::optional<Rounds> rounds_of(const Algorithm& algorithm, const Shape& shape, double bytes);

// For a network without failures. Throws Error(connection_lost) if two ranks have no path.
SimulationResult play_rounds(const Rounds& rounds, Network& network, int ranks);

}  // namespace tutti
