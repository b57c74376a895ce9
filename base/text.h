// Small helpers for text that people read. Not for the hot path.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Joins the parts to a text: cat("rank ", 3, " of ", 4) returns "rank 3 of 4".
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Writes sorted ranks as ranges: {0, 1, 2, 5} gives "0-2,5".
std::string rank_ranges(const std::vector<int>& sorted);

// Writes a size in binary units: 1536 gives "1.5 KiB".
std::string human_bytes(uint64_t bytes);

// Parses a size with an optional binary unit (powers of 1024): "64K", "1M", "2GiB", "1024". Throws
// Error(invalid_argument) if the text is not a size.
uint64_t parse_bytes(std::string_view text);

// Returns the parts of `text` between separators, without empty parts.
std::vector<std::string> split(std::string_view text, char separator);

// Returns the candidate with the smallest edit distance to `word`, or "" if none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tutti
