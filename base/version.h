// The version, in one place.
#pragma once

#include <string_view>

namespace tutti {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace tutti
