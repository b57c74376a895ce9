// Programs that are too long to be played, but of which every round is like the others: rings, and
// all-to-alls without anybody in between. What they take follows from the ways of one round.
//
//   ring         n ranks pass on what came, so many times: the slowest run of so many hops, one
//   after
//                the other; or all that the busiest link carries, whichever takes longer
//   all-to-all   each rank sends to all others at the same time: what the busiest links carry. On
//                networks that are alike everywhere a few distances between ranks stand for all
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/program/algorithm.h"
#include "collectives/simulate/simulate.h"
#include "topology/networks/network.h"

namespace tutti {

struct Rounds {
  int64_t count = 0;
  double bytes = 0;          // that each rank sends in one
  bool to_everyone = false;  // else each to the next rank
};

// Nothing for programs that are not of this kind. `bytes`: as SimulationOptions::bytes.
std::optional<Rounds> rounds_of(const Algorithm& algorithm, const Shape& shape, double bytes);

// On a network without trouble. Throws Error(connection_lost) where two ranks have no way.
SimulationResult play_rounds(const Rounds& rounds, Network& network, int ranks);

}  // namespace tutti
