// Describes a machine for predictions that need no running ranks.
#pragma once

#include "collectives/cost/cost.h"

namespace tutti {

// Returns a machine in which ranks of one host use shared memory if `shm` is true; all other pairs
// of ranks use `far`.
Machine imagined_machine(const Hosts& hosts, bool shm, PathClass far, const CostModel& model);

}  // namespace tutti
