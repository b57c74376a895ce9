// Names typed by people: matching, and suggestions for misspelt ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Returns true if the names differ at most in case, '-' and '_': "AllReduce", "all-reduce",
// "all_reduce".
bool same_name(std::string_view a, std::string_view b);

// Returns the beginning of a remedy, "did you mean tree? ", if a name in `known` is close to
// `word`; otherwise "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// Joins names: "a, b, c".
std::string listed(const std::vector<std::string>& names);

}  // namespace tutti
