// JSON that strangers wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti::training {

// Throws std::invalid_argument that says what is wrong: the syntax, a key that an object has twice,
// or more than `max_depth` arrays and objects inside each other.
nlohmann::json parse_strictly(std::string_view text, int max_depth);

// A stranger's text for people: in quotes, in printable ASCII, cut where it is long.
std::string in_quotes(std::string_view text);

}  // namespace tutti::training
