// Artificial stragglers for experiments: with "3:x4" rank 3 takes four times as long.
#pragma once

#include <map>
#include <string>

namespace tutti::training {

// Parses "R:xF[,R:xF ...]" into slowdown factors by rank. Throws Error(invalid_argument) for other
// texts, and for factors outside [1, 1000].
std::map<int, double> stragglers_in(const std::string& text);

}  // namespace tutti::training
