// Parses numbers without locale, white space or a plus sign.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti {

// Returns nullopt unless the whole `word` is one number that fits the type.
template <typename Number>
std::optional<Number> parse_number(std::string_view word) {
  Number value{};
  const char* const last = word.data() + word.size();
  const auto [end, status] = std::from_chars(word.data(), last, value);
  return status == std::errc{} && end == last ? std::optional(value) : std::nullopt;
}

}  // namespace tutti
