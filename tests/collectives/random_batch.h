// Makes a few random calls (random_calls.h) in randomly chosen ways, and checks the results.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"

namespace tutti::testing {

// Collective; `seed` must be the same on all ranks. Wrong results fail the running test. Throws the
// errors of the calls.
void run_batch(Communicator& comm, uint64_t seed);

}  // namespace tutti::testing
