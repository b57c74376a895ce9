// Ranks that are made slow, for experiments: "3:x4" is rank 3, which takes four times as long.
#pragma once

#include <string>

namespace tutti::training {

// The largest number of a rank that `text` names; -1: none.
int last_straggler(const std::string& text);
// By how much the rank is slower than it would be: 1 for those that `text` ("R:xF[,R:xF ...]") does
// not name. Throws Error(invalid_argument).
double slowdown_of(const std::string& text, int rank);

}  // namespace tutti::training
