// A stranger's text (a file's, a peer's) for people: in printable ASCII, so that it cannot steer a
// terminal, and cut where it is long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

std::string printable(std::string_view text, size_t longest = 120);
std::string in_quotes(std::string_view text);

}  // namespace tutti
