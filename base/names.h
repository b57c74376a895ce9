// Names that people type: what they mean, and which were near.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// True where two names differ in case, '-' and '_' only: "AllReduce", "all-reduce", "all_reduce".
bool same_name(std::string_view a, std::string_view b);

// Starts a remedy: "did you mean tree? " where one of `known` is near, else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// "a, b, c"
std::string listed(const std::vector<std::string>& names);

}  // namespace tutti
