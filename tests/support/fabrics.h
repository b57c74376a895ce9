// Availability of UCX and libfabric for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::testing {

// Returns why ranks cannot use this transport here ("shm", "ucx" ...); empty if they can.
std::string lacks(std::string_view transport);

// Returns "shm", "tcp", and "ucx" and "ofi" if available.
std::vector<std::string> transports();

}  // namespace tutti::testing
