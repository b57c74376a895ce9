// Checks of words that must be one of several.
#pragma once

#include <string>
#include <vector>

namespace tutti {

// Returns what is wrong with a word that is none of the choices: "foo" is not one of a, b (did you
// mean ...?). Returns "" if the word is one of them.
std::string choice_problem(const std::string& word, const std::vector<std::string>& choices);

}  // namespace tutti
