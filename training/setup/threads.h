// How many threads a rank may compute with.
#pragma once

#include "collectives/communicator.h"

namespace tutti::training {

// Collective: this rank's share of the processors that the ranks of its host may run on; at
// least 1.
int share_of_processors(Communicator& world);

}  // namespace tutti::training
