// Finds the transports that tests can use on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::testing {

// Returns the reason why ranks cannot use this transport here ("shm", "ucx" ...), or an empty text
// if they can.
std::string lacks(std::string_view transport);

// Returns "shm", "tcp", and "ucx" and "ofi" if available.
std::vector<std::string> transports();

}  // namespace tutti::testing
