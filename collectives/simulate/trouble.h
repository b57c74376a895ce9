// Explains why a simulated collective cannot complete.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "collectives/simulate/schedule.h"
#include "topology/networks/network.h"

namespace tutti {

// Builds the error for two ranks between which no path is left. It names the ranks, among the first
// 4096, that are cut off from the larger part of the network.
Error cut_off(Network& network, int32_t ranks, int32_t from, int32_t to);

// Builds the error for a simulation in which no further event is possible. It names the ranks that
// wait for failed ranks, directly or through other ranks. `unfinished`: the ranks that have not
// ended, in ascending order.
Error stopped(const Schedule& schedule, std::span<const int32_t> failed,
              const std::vector<int>& unfinished);

}  // namespace tutti
