// The machine that absent ranks would find, for predictions.
#pragma once

#include "collectives/cost/cost.h"

namespace tutti {

// Ranks of one host use shared memory if `shm`; all other pairs use `far`.
Machine imagined_machine(const Hosts& hosts, bool shm, PathClass far, const CostModel& model);

}  // namespace tutti
