// Bus bandwidth as in nccl-tests (doc/PERFORMANCE.md): the bytes per second that each rank's link
// must carry. It makes collectives of all kinds and sizes comparable.
#pragma once

#include "collectives/program/program.h"

namespace tutti {

// Returns bus bandwidth / algorithm bandwidth. This ratio is the number of bytes that pass over a
// rank's link per byte of the call. It exceeds 1 for an all_reduce on more than two ranks.
double bus_factor(Collective collective, int ranks);

}  // namespace tutti
