// Reference for the formats of kernels/quantized_gemm.h, written after their definitions: compares
// with every code of a format, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/base/small_float_reference.h"

namespace tutti::training::testing {

// All magnitudes of a format, in ascending order. The index of a magnitude is its code.
inline const std::vector<double>& e4m3_magnitudes() {
  static const std::vector<double> all = [] {
    const tutti::testing::SmallFloatReference type(DType::f8e4m3);
    std::vector<double> values;
    for (int code = 0; code < 0x7f; ++code) values.push_back(type.decode(code));
    return values;
  }();
  return all;
}
inline const std::vector<double>& e2m1_magnitudes() {
  static const std::vector<double> all = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return all;
}

// Returns the nearest value of the format to x. Ties go to the even code.
inline double nearest(const std::vector<double>& magnitudes, double x) {
  const double wanted = std::abs(x);
  const auto above = std::ranges::lower_bound(magnitudes, wanted);
  if (above == magnitudes.begin()) return std::copysign(magnitudes.front(), x);
  if (above == magnitudes.end()) return std::copysign(magnitudes.back(), x);
  const double up = *above - wanted, down = wanted - *(above - 1);
  const bool is_even = (above - magnitudes.begin()) % 2 == 0;
  return std::copysign(up < down || (up == down && is_even) ? *above : *(above - 1), x);
}

// Rounds stochastically: up if the distance from the magnitude below x, as a fraction of the gap
// between its two neighbours, exceeds `chance`; otherwise down.
inline double by_chance(const std::vector<double>& magnitudes, double x, double chance) {
  const double wanted = std::abs(x);
  size_t below = 0;
  while (below + 1 < magnitudes.size() && magnitudes[below + 1] <= wanted) ++below;
  if (below + 1 == magnitudes.size()) return std::copysign(magnitudes.back(), x);
  const double low = magnitudes[below], high = magnitudes[below + 1];
  return std::copysign((wanted - low) / (high - low) > chance ? high : low, x);
}

inline bool has_only_numbers(const std::vector<float>& block) {
  return std::ranges::all_of(block, [](float value) { return std::isfinite(value); });
}
inline double largest_of(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) {
    if (std::isfinite(value)) most = std::max(most, std::abs(static_cast<double>(value)));
  }
  return most;
}

// Returns the block's values rounded to E4M3 with the scale 2^exponent.
inline std::vector<float> scaled_by(int exponent, const std::vector<float>& block) {
  std::vector<float> rounded;
  for (const float value : block) {
    const double element =
        nearest(e4m3_magnitudes(), std::ldexp(static_cast<double>(value), -exponent));
    rounded.push_back(static_cast<float>(std::ldexp(element, exponent)));
  }
  return rounded;
}

// Rounds to 10 bits of mantissa, ties away from zero.
inline float tf32_value(float value) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), -126) - 10;  // exponent of the last bit
  const double rounded =
      std::ldexp(std::round(std::ldexp(static_cast<double>(value), -exponent)), exponent);
  const bool fits = std::abs(rounded) <= std::numeric_limits<float>::max();
  return fits ? static_cast<float>(rounded)
              : std::copysign(std::numeric_limits<float>::infinity(), value);
}

inline std::vector<float> tf32_values(std::vector<float> values) {
  for (float& value : values) value = tf32_value(value);
  return values;
}

inline std::vector<float> fp8_block(const std::vector<float>& block) {
  if (!has_only_numbers(block)) return std::vector<float>(block.size(), std::nanf(""));
  int exponent = -127;
  while (std::ldexp(largest_of(block), -exponent) > 448) ++exponent;
  return scaled_by(exponent, block);
}

inline std::vector<float> mxfp8_block(const std::vector<float>& block) {
  if (!has_only_numbers(block)) return std::vector<float>(block.size(), std::nanf(""));
  const double most = largest_of(block);
  const int exponent = most == 0 ? -127 : std::max(-127, std::ilogb(most) - 8);
  return scaled_by(exponent, block);
}

inline float nvfp4_scale(float largest) {
  return largest == 0 ? 1.0f : std::min(2688.0f / largest, std::numeric_limits<float>::max());
}

// chance(i) is the random number that rounds element i; below 0: element i is rounded to nearest.
template <typename Chance>
std::vector<float> nvfp4_block(const std::vector<float>& block, float scale, const Chance& chance) {
  if (!has_only_numbers(block)) return std::vector<float>(block.size(), std::nanf(""));
  const float wanted = static_cast<float>(largest_of(block)) / 6.0f * scale;
  const auto own = static_cast<float>(nearest(e4m3_magnitudes(), std::min(wanted, 448.0f)));
  if (own == 0) return std::vector<float>(block.size(), 0.0f);
  const float factor = std::min(1.0f / (own * (1.0f / scale)), std::numeric_limits<float>::max());
  std::vector<float> rounded;
  for (size_t i = 0; i < block.size(); ++i) {
    const double x = block[i] * factor;
    const double element =
        chance(i) < 0 ? nearest(e2m1_magnitudes(), x) : by_chance(e2m1_magnitudes(), x, chance(i));
    rounded.push_back(static_cast<float>(element * own));
  }
  return rounded;
}

}  // namespace tutti::training::testing
