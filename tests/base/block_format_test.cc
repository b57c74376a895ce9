// Tests block formats against their definitions, computed in double: each element is the nearest
// code, ties to even.
#include "base/block_format.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/reduce.h"

namespace tutti {
namespace {

using Values = std::vector<float>;

constexpr std::array kAll = {BlockFormat::mx8, BlockFormat::mx4, BlockFormat::int8,
                             BlockFormat::sign};

std::vector<std::byte> encoded(BlockFormat format, const Values& values) {
  std::vector<std::byte> bytes(bytes_of(format, values.size()));
  encode(format, values, bytes);
  return bytes;
}

Values decoded(BlockFormat format, const std::vector<std::byte>& bytes, size_t count) {
  Values values(count);
  decode(format, bytes, values);
  return values;
}

Values through(BlockFormat format, const Values& values) {
  return decoded(format, encoded(format, values), values.size());
}

// --- the definitions ---

// Returns the magnitudes of a format's elements, in the order of codes.
std::vector<double> magnitudes(BlockFormat format) {
  if (format == BlockFormat::mx4) return {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<double> all;
  for (uint16_t code = 0; code < 0x7f; ++code) all.push_back(to_float(DType::f8e4m3, code));
  return all;
}

double nearest(const std::vector<double>& codes, double x) {
  size_t best = 0;
  for (size_t code = 1; code < codes.size(); ++code) {
    const double was = std::abs(std::abs(x) - codes[best]);
    const double is = std::abs(std::abs(x) - codes[code]);
    if (is < was || (is == was && code % 2 == 0)) best = code;
  }
  return std::copysign(codes[best], x);
}

bool has_only_numbers(const Values& block) {
  for (const float value : block) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

double largest(const Values& block) {
  double most = 0;
  for (const float value : block) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

Values expected_mx(BlockFormat format, const Values& block) {
  static const std::array<std::vector<double>, 2> codes = {magnitudes(BlockFormat::mx8),
                                                           magnitudes(BlockFormat::mx4)};
  if (!has_only_numbers(block)) return Values(block.size(), std::nanf(""));
  const int most_exponent = format == BlockFormat::mx8 ? 8 : 2;
  const double most = largest(block);
  const int exponent =
      most == 0 ? -127
                : std::max(-127, static_cast<int>(std::floor(std::log2(most))) - most_exponent);
  Values values;
  for (const float value : block) {
    const double scaled = std::ldexp(static_cast<double>(value), -exponent);
    const double element = nearest(codes[format == BlockFormat::mx8 ? 0 : 1], scaled);
    values.push_back(static_cast<float>(std::ldexp(element, exponent)));
  }
  return values;
}

Values expected_int8(const Values& block) {
  if (!has_only_numbers(block)) return Values(block.size(), std::nanf(""));
  const float scale = static_cast<float>(largest(block)) / 127;
  Values values;
  for (const float value : block) {
    const float whole = scale > 0 ? std::nearbyint(value / scale) : 0;
    values.push_back(scale * std::min(127.0f, std::max(-127.0f, whole)));
  }
  return values;
}

Values expected_sign(const Values& block) {
  double sum = 0;
  for (const float value : block) sum += std::abs(static_cast<double>(value));
  const auto scale = static_cast<float>(sum / static_cast<double>(block.size()));
  Values values;
  for (const float value : block) values.push_back(value < 0 ? -scale : scale);
  return values;
}

Values expected(BlockFormat format, const Values& all) {
  Values values;
  for (size_t first = 0; first < all.size(); first += block_of(format)) {
    const size_t end = std::min(all.size(), first + block_of(format));
    const Values block(all.begin() + static_cast<std::ptrdiff_t>(first),
                       all.begin() + static_cast<std::ptrdiff_t>(end));
    const Values its = format == BlockFormat::int8   ? expected_int8(block)
                       : format == BlockFormat::sign ? expected_sign(block)
                                                     : expected_mx(format, block);
    values.insert(values.end(), its.begin(), its.end());
  }
  return values;
}

void expect_same(BlockFormat format, const Values& values) {
  const Values found = through(format, values);
  const Values wanted = expected(format, values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(wanted[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << name(format) << ' ' << i << ": " << found[i];
    } else {
      ASSERT_EQ(found[i], wanted[i]) << name(format) << ' ' << i << ": " << values[i];
    }
  }
}

// --- values ---

// Returns blocks of values of one magnitude and blocks of many magnitudes, including ties.
Values many_values() {
  constexpr size_t kCount = 1'000'000;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Values values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const size_t block = i / 32;
    const float x = normal(random);
    switch (block % 5) {
      case 0:
        values[i] = x;
        break;
      case 1:  // values of few bits, which give ties
        values[i] = std::round(x * 16) / 16;
        break;
      case 2:  // many magnitudes
        values[i] = std::ldexp(x, static_cast<int>(random() % 40) - 20);
        break;
      case 3:  // one magnitude per block, over the range of floats
        values[i] = std::ldexp(x, static_cast<int>(block / 5 % 270) - 145);
        break;
      default:
        values[i] = std::ldexp(std::round(x * 4), static_cast<int>(block % 64) - 32);
    }
    if (!std::isfinite(values[i])) values[i] = std::numeric_limits<float>::max();
  }
  return values;
}

TEST(BlockFormat, AMillionValuesMatchTheDefinition) {
  const Values values = many_values();
  for (const BlockFormat format : kAll) expect_same(format, values);
}

TEST(BlockFormat, HasSubnormalsZerosAndTheLargest) {
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const BlockFormat format : kAll) {
    const size_t block = block_of(format);
    expect_same(format, Values(2 * block, 0.0f));
    expect_same(format, Values(block, -0.0f));
    expect_same(format, Values(block, kLeast));
    Values mixed(block, 1.0f);
    mixed[1] = kLeast;
    mixed[2] = -0.0f;
    expect_same(format, mixed);
    for (const BlockFormat one : {BlockFormat::mx8, BlockFormat::mx4, BlockFormat::int8}) {
      expect_same(one, Values(block_of(one), kMost));
    }
  }
}

TEST(BlockFormat, NonFiniteValuesAreKept) {
  for (const BlockFormat format : kAll) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      Values values(2 * block_of(format), 1.0f);
      values[3] = bad;
      const Values found = through(format, values);
      EXPECT_FALSE(std::isfinite(found[0])) << name(format);
      EXPECT_FALSE(std::isfinite(found[3])) << name(format);
      EXPECT_TRUE(std::isfinite(found[block_of(format)])) << "another block";
    }
  }
}

TEST(BlockFormat, CountsBytes) {
  EXPECT_EQ(bytes_of(BlockFormat::mx8, 32), 33u);
  EXPECT_EQ(bytes_of(BlockFormat::mx4, 32), 17u);
  EXPECT_EQ(bytes_of(BlockFormat::int8, 256), 260u);
  EXPECT_EQ(bytes_of(BlockFormat::sign, 256), 36u);
  for (const BlockFormat format : kAll) {
    EXPECT_EQ(bytes_of(format, 0), 0u);
    EXPECT_EQ(block_format_named(name(format)), format);
    // For every length, the parts of data that is cut at block boundaries encode to the same bytes
    // as the whole.
    for (size_t count = 1; count < 3 * block_of(format); count += 7) {
      Values values(count);
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) - 20;
      expect_same(format, values);
      const size_t block = block_of(format);
      if (count > block) {
        EXPECT_EQ(bytes_of(format, count),
                  bytes_of(format, block) + bytes_of(format, count - block));
      }
    }
  }
  EXPECT_FALSE(block_format_named("mx7").has_value());
}

// The encoded bytes of a block are a scale of 2^-7, followed by the codes.
TEST(BlockFormat, HasTheseBytes) {
  Values values(32, 0.0f);
  values[0] = 1;     // 1 / 2^(0 - 8) = 256: E4M3 0x78
  values[1] = -0.5;  // -128: 0xf0
  const std::vector<std::byte> mx8 = encoded(BlockFormat::mx8, values);
  EXPECT_EQ(mx8[0], std::byte{127 - 8});
  EXPECT_EQ(mx8[1], std::byte{0x78});
  EXPECT_EQ(mx8[2], std::byte{0xf0});
  const std::vector<std::byte> mx4 = encoded(BlockFormat::mx4, values);
  EXPECT_EQ(mx4[0], std::byte{127 - 2});
  EXPECT_EQ(mx4[1], std::byte{0xc6}) << "4 (code 6), and -2 (code 12) above it";
}

// The padding of an incomplete block remains padding, even in sums, and is never returned as a
// value.
TEST(BlockFormats, PaddingChangesNothing) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> values(-2, 2);
  for (const BlockFormat format : kAll) {
    const size_t block = block_of(format);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, block - 1, block}) {
      Values given(count);
      for (float& value : given) value = values(random);
      Values whole = given;
      whole.resize(block, padding(format));
      Values expected = through(format, given);
      const Values found = through(format, whole);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(found[i], expected[i]) << name(format) << count;
      for (size_t i = count; i < block; ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(padding(format)));
      }
      // When values are doubled, the scale is doubled.
      std::vector<std::byte> sum = encoded(format, whole);
      reduce_kernel(element_of(format), ReduceOp::sum)(sum.data(), sum.data(), sum.data(), 1, {});
      const Values doubled = decoded(format, sum, block);
      for (float& value : expected) value *= 2;
      expected = through(format, expected);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_FLOAT_EQ(doubled[i], expected[i]) << name(format) << ' ' << count;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
