// Bus bandwidth, by which collectives of all kinds and sizes compare (nccl-tests,
// doc/PERFORMANCE.md): bytes a second times what part of them a GPU's link has to carry.
#pragma once

#include "collectives/program/program.h"

namespace tutti {

double bus_factor(Collective collective, int ranks);

}  // namespace tutti
