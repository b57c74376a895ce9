// Creates two ranks in one process. The calling thread drives both, so that one rank's part of a
// call can be measured without waiting for the other rank.
#pragma once

#include <array>

#include "collectives/communicator.h"

namespace tutti::bench {

std::array<Communicator, 2> make_pair_of_ranks();

}  // namespace tutti::bench
