// Tests the rounding of operands, bit for bit, against the definitions.
#include "training/kernels/cpu/operand_loops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/mix_bits.h"
#include "tests/training/kernels/operand_reference.h"

namespace tutti::training::testing {
namespace {

using kernels::operand_loops;
using kernels::Square;
using Values = std::vector<float>;

constexpr size_t kCount = 1 << 20;

// Returns blocks of 128 values. There are eight kinds of blocks: ordinary values, two kinds of
// ties, many magnitudes in one block, magnitudes over the whole range of floats, subnormals, zeros,
// and ordinary values with an infinity or NaN.
Values many_values() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Values values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const size_t block = i / 128;
    const float x = normal(random);
    const auto octave = static_cast<int>(block / 8 % 270) - 145;
    switch (block % 8) {
      case 0:
        values[i] = x;
        break;
      case 1:
        values[i] = std::round(x * 16) / 16;
        break;
      case 2:
        values[i] = std::ldexp(x, static_cast<int>(random() % 40) - 20);
        break;
      case 3:
        values[i] = std::ldexp(x, octave);
        break;
      case 4:
        values[i] = std::ldexp(std::round(x * 4), octave);
        break;
      case 5:  // subnormals
        values[i] = std::ldexp(std::round(x * 1000), -149);
        break;
      case 6:
        values[i] = i % 2 == 0 ? 0.0f : -0.0f;
        break;
      default:
        values[i] = x;
        if (i % 128 == 77) values[i] = block % 16 == 7 ? kInfinity : std::nanf("");
        if (block % 32 == 23 && i % 128 == 77) values[i] = -kInfinity;
    }
    if (block % 8 != 7 && !std::isfinite(values[i])) {
      values[i] = std::copysign(std::numeric_limits<float>::max(), x);
    }
  }
  return values;
}

// Returns the midpoint of every two neighbouring magnitudes and the floats next to it, with both
// signs. Each block also contains the largest magnitude, so that its scale is 1.
Values hard_values(const std::vector<double>& magnitudes, size_t block) {
  Values values;
  const auto most = static_cast<float>(magnitudes.back());
  for (size_t i = 0; i + 1 < magnitudes.size(); ++i) {
    const auto middle = static_cast<float>((magnitudes[i] + magnitudes[i + 1]) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, most)}) {
      if (values.size() % block == 0) values.push_back(most);
      values.push_back(value);
      if (values.size() % block == 0) values.push_back(most);
      values.push_back(-value);
    }
  }
  values.resize((values.size() + block - 1) / block * block);
  return values;
}

void expect_same(const Values& found, const Values& wanted, size_t first = 0) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(wanted[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << first + i << ": " << found[i];
    } else if (wanted[i] == 0) {
      ASSERT_EQ(found[i], 0) << first + i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(wanted[i]))
          << first + i << ": " << found[i] << " in place of " << wanted[i];
    }
  }
}

// Rounds the values in two ways: in squares of `block` columns by round(square), and row by row by
// `definition`. Expects equal bits.
template <typename Round, typename Definition>
void compare_rows(const Values& values, int64_t block, const Round& round,
                  const Definition& definition) {
  const auto size = static_cast<size_t>(block);
  ASSERT_EQ(values.size() % size, 0u);
  for (size_t first = 0; first < values.size(); first += size * size) {
    const size_t rows = std::min(size, (values.size() - first) / size);
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    Values found(begin, begin + static_cast<std::ptrdiff_t>(rows * size));
    Values wanted;
    for (size_t row = 0; row < rows; ++row) {
      const auto start = begin + static_cast<std::ptrdiff_t>(row * size);
      const Values its = definition(Values(start, start + block), first + row * size);
      wanted.insert(wanted.end(), its.begin(), its.end());
    }
    round(Square{.values = found.data(),
                 .rows = static_cast<int64_t>(rows),
                 .cols = block,
                 .stride = block},
          first);
    expect_same(found, wanted, first);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Returns, for all exponents, values halfway between two values of tf32, and the floats next to
// them.
Values hard_values_of_tf32() {
  std::mt19937 random(11);
  Values values;
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (int i = 0; i < 64; ++i) {
      // All ones: rounding up carries into the exponent.
      const uint32_t kept = i == 0 ? 1023 : random() % 1024;
      const uint32_t middle = exponent << 23 | kept << 13 | 1U << 12;
      for (const uint32_t bits : {middle - 1, middle, middle + 1, middle | 1U << 31}) {
        values.push_back(std::bit_cast<float>(bits));
      }
    }
  }
  return values;
}

TEST(OperandLoops, Tf32IsItsDefinitionOnAMillionValues) {
  for (const Values& values : {many_values(), hard_values_of_tf32()}) {
    compare_rows(
        values, kernels::kTf32Block,
        [](const Square& square, size_t) { operand_loops().tf32(square); },
        [](const Values& row, size_t) { return tf32_values(row); });
  }
  Values values = {1 + 0x1p-11f, -1 - 0x1p-11f, 1 + 0x1p-11f - 0x1p-23f, 5, 0x1.ffffp127f};
  operand_loops().tf32({.values = values.data(), .rows = 1, .cols = 5, .stride = 5});
  expect_same(values, {1 + 0x1p-10f, -1 - 0x1p-10f, 1, 5, std::numeric_limits<float>::infinity()});
}

TEST(OperandLoops, Fp8IsItsDefinitionOnAMillionValues) {
  for (const Values& values : {many_values(), hard_values(e4m3_magnitudes(), 128)}) {
    compare_rows(
        values, kernels::kFp8Block,
        [](const Square& square, size_t) { operand_loops().fp8(square); },
        [](const Values& block, size_t) { return fp8_block(block); });
  }
}

TEST(OperandLoops, Mxfp8IsItsDefinitionOnAMillionValues) {
  for (const Values& values : {many_values(), hard_values(e4m3_magnitudes(), 32)}) {
    compare_rows(
        values, kernels::kMxfp8Block,
        [](const Square& square, size_t) { operand_loops().mxfp8(square); },
        [](const Values& block, size_t) { return mxfp8_block(block); });
  }
}

// The operands are squares of 16 x 16, each with its own scale.
TEST(OperandLoops, Nvfp4IsItsDefinitionOnAMillionValues) {
  constexpr uint64_t kSeed = 99;
  for (const bool chances : {false, true}) {
    for (const Values& values : {many_values(), hard_values(e2m1_magnitudes(), 16)}) {
      const auto scale_at = [&](size_t index) {
        const size_t first = index / 256 * 256;
        const size_t end = std::min(values.size(), first + 256);
        return nvfp4_scale(static_cast<float>(
            largest_of(Values(values.begin() + static_cast<std::ptrdiff_t>(first),
                              values.begin() + static_cast<std::ptrdiff_t>(end)))));
      };
      compare_rows(
          values, kernels::kNvfp4Block,
          [&](const Square& square, size_t first) {
            operand_loops().nvfp4(square, {.scale = scale_at(first),
                                           .by_chance = chances,
                                           .seed = kSeed,
                                           .index = first,
                                           .step = kernels::kNvfp4Block});
          },
          [&](const Values& block, size_t first) {
            return nvfp4_block(block, scale_at(first), [&](size_t i) {
              if (!chances) return -1.0;
              return static_cast<double>(mix_bits(kSeed + (first + i) * kGolden) >> 40) * 0x1p-24;
            });
          });
    }
  }
}

// A square of a weight has one scale, even if the edge of the matrix cuts the square.
TEST(OperandLoops, ASquareIsOneBlock) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const auto& [rows, cols] : {std::pair{128, 128}, std::pair{5, 128}, std::pair{128, 7}}) {
    Values values(static_cast<size_t>(rows * 128), 1000.0f);
    Values block;
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < cols; ++col) {
        values[static_cast<size_t>(row * 128 + col)] = normal(random);
        block.push_back(values[static_cast<size_t>(row * 128 + col)]);
      }
    }
    operand_loops().fp8(
        {.values = values.data(), .rows = rows, .cols = cols, .stride = 128, .is_one_block = true});
    const Values wanted = fp8_block(block);
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < 128; ++col) {
        const float found = values[static_cast<size_t>(row * 128 + col)];
        EXPECT_EQ(found, col < cols ? wanted[static_cast<size_t>(row * cols + col)] : 1000.0f);
      }
    }
  }
}

// The expected value of a stochastically rounded number is the number itself.
TEST(OperandLoops, ChancesAreFair) {
  constexpr int kRows = 4096;
  for (const float x : {0.2f, 0.75f, 1.1f, -2.25f, 3.9f, -5.0f}) {
    double sum = 0;
    for (int row = 0; row < kRows; ++row) {
      Values values(16, x);
      values[0] = 6;
      operand_loops().nvfp4({.values = values.data(), .rows = 1, .cols = 16, .stride = 16},
                            {.scale = 2688.0f / 6.0f,
                             .by_chance = true,
                             .seed = 5,
                             .index = static_cast<uint64_t>(16 * row)});
      EXPECT_EQ(values[0], 448.0f * 6.0f);
      for (size_t i = 1; i < 16; ++i) sum += static_cast<double>(values[i]) / 448.0;
    }
    EXPECT_NEAR(sum / (15.0 * kRows), x, 0.02);
  }
}

// The matrix is orthogonal: its rows are those of H_16 / 4 with signs.
TEST(OperandLoops, HadamardIsItsMatrix) {
  constexpr std::array<int, 16> kSigns = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (size_t j = 0; j < 16; ++j) {
    Values values(16, 0.0f);
    values[j] = 8;
    operand_loops().hadamard(values.data(), 1, 16);
    for (size_t i = 0; i < 16; ++i) {
      const int sign = std::popcount(i & j) % 2 == 0 ? 1 : -1;
      EXPECT_EQ(values[i], static_cast<float>(2 * sign * kSigns[j])) << i << ' ' << j;
    }
  }
}

TEST(OperandLoops, TheLargestIsFinite) {
  const Values values = {1, -3, std::nanf(""), -std::numeric_limits<float>::infinity(), 2};
  EXPECT_EQ(operand_loops().largest(values.data(), 5), 3);
  EXPECT_EQ(operand_loops().largest(values.data(), 0), 0);
}

}  // namespace
}  // namespace tutti::training::testing
