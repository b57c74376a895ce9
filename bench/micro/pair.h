// Two ranks in one process, both driven by the calling thread, so that one rank's part of a call
// can be measured without a wait for the other.
#pragma once

#include <array>

#include "collectives/communicator.h"

namespace tutti::bench {

std::array<Communicator, 2> make_pair_of_ranks();

}  // namespace tutti::bench
