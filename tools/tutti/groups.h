// Parses groups of ranks on the command line.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool {

// Returns the sizes of the groups in "4" (groups of 4 ranks each; must divide `ranks`) or "3,3,2"
// (must sum to `ranks`). Throws Error(invalid_argument) for other texts.
std::vector<int> parse_groups(const std::string& text, int ranks);

inline constexpr char kGroupHelp[] = "ranks per host: 4, or 3,3,2 if hosts differ";

}  // namespace tutti::tool
