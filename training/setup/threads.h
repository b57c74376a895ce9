// Number of compute threads of a rank.
#pragma once

#include "collectives/communicator.h"

namespace tutti::training {

// Collective: returns this rank's share, at least 1, of the processors that the ranks of its host
// may run on.
int share_of_processors(Communicator& world);

}  // namespace tutti::training
