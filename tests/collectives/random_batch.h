// Makes a few random calls (random_calls.h) in a random form, and checks them.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"

namespace tutti::testing {

// Collective, with the same seed on all ranks. Errors fail the running test. Throws what a call
// throws.
void run_batch(Communicator& comm, uint64_t seed);

}  // namespace tutti::testing
