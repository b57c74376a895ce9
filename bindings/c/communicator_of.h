// Converts C handles to C++ objects, for code that is built with the shared library with which it
// runs.
#pragma once

#include "bindings/c/tutti.h"
#include "collectives/communicator.h"

namespace tutti {

// Returns the communicator of a handle; it stays valid after the handle is freed. Throws
// Error(invalid_argument) for NULL.
Communicator communicator_of(tutti_comm_t* comm);

}  // namespace tutti
