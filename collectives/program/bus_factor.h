// Bus bandwidth, which makes collectives of all kinds and sizes comparable (nccl-tests,
// doc/PERFORMANCE.md): the bytes per second that a GPU's link carries. The factor is the fraction
// of a call's bytes that pass over that link.
#pragma once

#include "collectives/program/program.h"

namespace tutti {

double bus_factor(Collective collective, int ranks);

}  // namespace tutti
