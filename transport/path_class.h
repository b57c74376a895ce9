// The path between two ranks, which determines the cost of their messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class PathClass : uint8_t { shm, tcp, ucx, ofi };

// Returns "shm", "tcp", "ucx" or "ofi", as in TUTTI_TRANSPORT.
std::string_view name(PathClass path);
std::optional<PathClass> parse_path_class(std::string_view text);

}  // namespace tutti
