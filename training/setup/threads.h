// Determines the number of compute threads of a rank.
#pragma once

#include "collectives/communicator.h"

namespace tutti::training {

// Collective. Returns this rank's share, at least 1, of the processors on which the ranks of its
// host may run.
int share_of_processors(Communicator& world);

}  // namespace tutti::training
