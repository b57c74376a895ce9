// A few calls drawn at random (random_calls.h), made in a form drawn at random, and checked.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"

namespace tutti::testing {

// Collective, with the same seed on all ranks. What is wrong fails the test that runs it. Throws
// what a call throws.
void run_batch(Communicator& comm, uint64_t seed);

}  // namespace tutti::testing
