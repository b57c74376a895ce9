// Describes libfabric on this machine for people.
#pragma once

#include <string>
#include <vector>

namespace tutti::ofi {

// Returns the library's version. Throws Error(unsupported) without libfabric.
std::string version();
// Returns the providers with their interfaces, capabilities and requirements, the one in use first.
// Throws Error.
std::vector<std::string> devices();

}  // namespace tutti::ofi
