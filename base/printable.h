// Makes untrusted text (from a file or a peer) safe to print: printable ASCII only, so that it
// cannot control a terminal, and truncated to a limit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

std::string printable(std::string_view text, size_t longest = 120);
std::string in_quotes(std::string_view text);

}  // namespace tutti
