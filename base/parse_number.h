// Numbers that are written as text, without a locale, white space or a plus sign.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti {

// Nothing unless the whole of `word` is one number that fits into the type.
template <typename Number>
std::optional<Number> parse_number(std::string_view word) {
  Number value{};
  const char* const last = word.data() + word.size();
  const auto [end, status] = std::from_chars(word.data(), last, value);
  return status == std::errc{} && end == last ? std::optional(value) : std::nullopt;
}

}  // namespace tutti
