// The machine as ranks would see it that are not there: for predictions.
#pragma once

#include "collectives/cost/cost.h"

namespace tutti {

// Ranks of one host use shared memory, or else `far` as all others.
Machine imagined_machine(const Hosts& hosts, bool shm, PathClass far, const CostModel& model);

}  // namespace tutti
