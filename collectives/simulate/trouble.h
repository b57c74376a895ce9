// What keeps a simulated collective from its end, in words.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "collectives/simulate/schedule.h"
#include "topology/networks/network.h"

namespace tutti {

// No way is left from one rank to another: names all that are cut off from the larger part.
Error cut_off(Network& network, int32_t ranks, int32_t from, int32_t to);

// Nothing more can happen: names who waits for the ranks that failed, and who for those in turn.
// `unfinished`: ranks, in order.
Error stopped(const Schedule& schedule, std::span<const int32_t> failed,
              const std::vector<int>& unfinished);

}  // namespace tutti
