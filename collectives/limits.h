// How much a communicator's transports hold: what all of its ranks agree on.
#pragma once

#include "collectives/cost.h"
#include "collectives/slicing.h"
#include "transport/transport.h"

namespace tutti {

// `largest_local`: ranks on the host that has most of them, where hosts use shared memory (`shm`).
// `tcp`: the other transport, or null where there is none.
Limits agreed_limits(int largest_local, bool shm, const Transport* tcp);

// TUTTI_TCP_STREAMS. Throws Error(invalid_argument) where it is out of range.
int tcp_streams();

// As a communicator of so many ranks would see it, `group` of them on each host, which use shared
// memory (`shm`) or TCP. For predictions without the ranks.
Machine imagined_machine(int ranks, int group, bool shm, const CostModel& model);

}  // namespace tutti
