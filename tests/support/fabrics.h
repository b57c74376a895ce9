// Whether tests of UCX and libfabric can run here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::testing {

// Why ranks cannot use this transport here ("shm", "ucx" ...); empty: they can.
std::string lacks(std::string_view transport);

// "shm", "tcp", and "ucx" and "ofi" where they can be tested.
std::vector<std::string> transports();

}  // namespace tutti::testing
