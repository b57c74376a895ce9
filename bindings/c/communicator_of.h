// Converts C handles to C++ objects. Code that includes this header must be built together with the
// shared library that it runs with.
#pragma once

#include "bindings/c/tutti.h"
#include "collectives/communicator.h"

namespace tutti {

// Returns the communicator of a handle. The communicator stays valid after the handle is freed.
// Throws Error(invalid_argument) for NULL.
Communicator communicator_of(tutti_comm_t* comm);

}  // namespace tutti
