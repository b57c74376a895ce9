// The ways in which Slurm writes lists down in short.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// "node[01-03,7],x" -> node01, node02, node03, node7, x. Several brackets in one name go through
// all combinations, the last one fastest. Throws Error(invalid_argument) that quotes what is wrong.
std::vector<std::string> expand_host_list(std::string_view text);

// "2(x3),1" -> 2, 2, 2, 1. Throws Error(invalid_argument).
std::vector<int> expand_counts(std::string_view text);

}  // namespace tutti
