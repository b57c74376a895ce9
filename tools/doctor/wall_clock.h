// Reads the time of day, on which hosts should agree.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti::tool {

inline int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tutti::tool
