// Bus bandwidth, which makes collectives of all kinds and sizes comparable (nccl-tests,
// doc/PERFORMANCE.md): bytes per second times the fraction of the bytes that a GPU's link carries.
#pragma once

#include "collectives/program/program.h"

namespace tutti {

double bus_factor(Collective collective, int ranks);

}  // namespace tutti
