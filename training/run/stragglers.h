// Ranks that are made slow, for experiments: "3:x4" is rank 3, which takes four times as long.
#pragma once

#include <map>
#include <string>

namespace tutti::training {

// By rank, how many times as long it takes, of those that `text` ("R:xF[,R:xF ...]") names. Throws
// Error(invalid_argument).
std::map<int, double> stragglers_in(const std::string& text);

}  // namespace tutti::training
