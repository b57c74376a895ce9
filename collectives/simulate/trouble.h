// Explains why a simulated collective cannot complete.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "collectives/simulate/schedule.h"
#include "topology/networks/network.h"

namespace tutti {

// No path is left from one rank to another: names all ranks cut off from the larger part.
Error cut_off(Network& network, int32_t ranks, int32_t from, int32_t to);

// No further event is possible: names the ranks that wait for failed ones, and those that wait for
// these in turn. `unfinished`: ranks, in order.
Error stopped(const Schedule& schedule, std::span<const int32_t> failed,
              const std::vector<int>& unfinished);

}  // namespace tutti
