// What libfabric is on this machine, for people.
#pragma once

#include <string>
#include <vector>

namespace tutti::ofi {

// Of the library. Throws Error(unsupported) where there is none.
std::string version();
// Its providers with their interfaces, and what each can do and asks for; the first is the one that
// is taken. Throws Error.
std::vector<std::string> devices();

}  // namespace tutti::ofi
