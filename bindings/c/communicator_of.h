// From the C interface to the C++ one: for what is built with the shared library that it runs with.
#pragma once

#include "bindings/c/tutti.h"
#include "collectives/communicator.h"

namespace tutti {

// The communicator behind a handle. Throws Error(invalid_argument) for NULL. It lives on when the
// handle is freed.
Communicator communicator_of(tutti_comm_t* comm);

}  // namespace tutti
