#include "transport/path_class.h"

#include <array>

namespace tutti {

namespace {

constexpr std::array<std::string_view, 4> kNames = {"shm", "tcp", "ucx", "ofi"};

}  // namespace

std::string_view name(PathClass path) { return kNames[static_cast<size_t>(path)]; }

std::optional<PathClass> parse_path_class(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<PathClass>(i);
  }
  return std::nullopt;
}

}  // namespace tutti
