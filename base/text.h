// Small helpers for text that people read. Not for the hot path.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// cat("rank ", 3, " of ", 4) -> "rank 3 of 4"
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// {0, 1, 2, 5} -> "0-2,5"
std::string rank_ranges(const std::vector<int>& sorted);

// 1536 -> "1.5 KiB"
std::string human_bytes(uint64_t bytes);

// "64K", "1M", "2GiB", "1024" -> bytes (powers of 1024). Throws Error(invalid_argument).
uint64_t parse_bytes(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);

// The candidate with the smallest edit distance, or "" when none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tutti
