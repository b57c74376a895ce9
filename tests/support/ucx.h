// Whether tests of UCX can run here.
#pragma once

#include <string>
#include <vector>

namespace tutti::testing {

// Why not; empty: they can.
std::string lacks_ucx();

// "shm", "tcp", and "ucx" where it can be tested.
std::vector<std::string> transports();

}  // namespace tutti::testing
