// The machine as ranks would see it that are not there: for predictions.
#pragma once

#include "collectives/cost/cost.h"

namespace tutti {

// `group` of the ranks on each host, which use shared memory (`shm`) or TCP there.
Machine imagined_machine(int ranks, int group, bool shm, const CostModel& model);

}  // namespace tutti
