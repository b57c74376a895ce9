// Converts integers to the library's scale factors, which are of type double.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <optional>

namespace tutti {

// Returns the value; nullopt for an integer that a double cannot represent, that is, one with more
// than 53 significant bits.
template <std::integral T>
constexpr std::optional<double> exact_double(T value) {
  const bool negative = value < T{0};
  const auto bits = static_cast<uint64_t>(value);
  const uint64_t magnitude = negative ? uint64_t{0} - bits : bits;
  if (magnitude != 0 && std::bit_width(magnitude) - std::countr_zero(magnitude) > 53) return {};
  return static_cast<double>(value);
}

static_assert(exact_double(INT64_MIN) == -0x1p63 && exact_double(int64_t{1} << 53) == 0x1p53);
static_assert(!exact_double((int64_t{1} << 53) + 1) && !exact_double(INT64_MAX));
static_assert(exact_double(int8_t{-3}) == -3.0 && !exact_double(UINT64_MAX));

}  // namespace tutti
