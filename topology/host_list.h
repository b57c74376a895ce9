// Slurm's compact notations for lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Expands "node[01-03,7],x" to node01, node02, node03, node7, x. Several brackets in one name form
// all combinations, the last one varying fastest. Throws Error(invalid_argument) that quotes the
// invalid part.
std::vector<std::string> expand_host_list(std::string_view text);

// Expands "2(x3),1" to 2, 2, 2, 1. Throws Error(invalid_argument).
std::vector<int> expand_counts(std::string_view text);

}  // namespace tutti
