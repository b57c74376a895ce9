// The version of the library.
#pragma once

#include <string_view>

namespace tutti {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace tutti
