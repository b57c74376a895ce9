// Groups of ranks, as the command line names them.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool {

// "4": as many in each, which divides the ranks; "3,3,2": these, which are all of them. Throws
// Error(invalid_argument).
std::vector<int> parse_groups(const std::string& text, int ranks);

inline constexpr char kGroupHelp[] = "ranks on each host: 4, or 3,3,2 where they differ";

}  // namespace tutti::tool
