// By what two ranks reach each other: what messages cost between them depends on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class PathClass : uint8_t { shm, tcp, ucx, ofi };

// "shm", "tcp", "ucx", "ofi", as in TUTTI_TRANSPORT.
std::string_view name(PathClass path);
std::optional<PathClass> parse_path_class(std::string_view text);

}  // namespace tutti
