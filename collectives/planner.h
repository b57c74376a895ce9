// Chooses the algorithm of a call.
//
// The choice depends on the arguments only, so all ranks choose alike without talking. Times are
// estimated in the alpha-beta-gamma model (Hockney 1994; Thakur, Rabenseifner, Gropp 2005):
//
//   T = messages * alpha  +  moved * bytes * beta  +  reduced * bytes * gamma
//
// with each algorithm's closed form (Algorithm::cost) and the constants below.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/algorithm.h"

namespace tutti {

// Seconds per message, per byte moved and per byte reduced. A message takes about 0.2 us over
// shared memory and 10 us over loopback TCP; the choice does not know the transport, and where
// algorithms meet they differ little over shared memory, so alpha lies between the two.
struct CostModel {
  double alpha = 2.5e-6;
  double beta = 1.0 / 5e9;
  double gamma = 1.0 / 10e9;
};

// Seconds. `bytes`: one rank's buffer (one block, for all_gather and reduce_scatter).
double estimate(const Algorithm& algorithm, int ranks, uint64_t bytes, const CostModel& model = {});

// The candidate with the lowest estimate among those of this collective that run on so many ranks
// and have at least this grade; the first of equals. Null if there is none.
const Algorithm* cheapest(std::span<const Algorithm> candidates, Collective collective, int ranks,
                          uint64_t bytes, Grade at_least);

// What "auto" means: the cheapest of all_algorithms() that gives the same bits on all ranks.
// Throws Error(unsupported) if there is none.
const Algorithm& choose_algorithm(Collective collective, int ranks, uint64_t bytes);

}  // namespace tutti
