#include "training/modules/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "tests/training/support/host_tensor.h"

namespace tutti::training::testing {
namespace {

// Treats pairs (i, i + half) as complex numbers, which are multiplied by exp(i position base^(-2 i
// / head_size)).
TEST(RopeTest, EqualsComplexRotation) {
  constexpr int64_t kContext = 5, kHeads = 2, kSize = 6, kHalf = kSize / 2;
  const Rope rope(kContext, kSize, {.base = 100});
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    // There are two samples. Each row has a third head, which is not rotated.
    const HostTensor x = random_tensor(type, 2 * kContext, 3 * kSize, 3);
    const HostTensor y = rounded_to(type, x);
    rope.rotate(y, kHeads, kContext);
    for (int64_t row = 0; row < 2 * kContext; ++row) {
      for (int64_t head = 0; head < 3; ++head) {
        for (int64_t i = 0; i < kHalf; ++i) {
          const int64_t col = head * kSize + i;
          const std::complex<double> before(get(x, row, col), get(x, row, col + kHalf));
          const std::complex<double> after(get(y, row, col), get(y, row, col + kHalf));
          const double angle =
              static_cast<double>(row % kContext) * std::pow(100, -static_cast<double>(i) / kHalf);
          const auto expected = before * std::polar(1.0, head < kHeads ? angle : 0);
          const double tolerance = type == DType::f64    ? 1e-14
                                   : type == DType::f32  ? 1e-6
                                   : type == DType::bf16 ? 0x1p-7
                                                         : 0x1p-10;
          EXPECT_LT(std::abs(after - expected), tolerance) << name(type);
        }
      }
    }
  }
}

TEST(RopeTest, KeepsLengthsAndHasAnInverse) {
  const Rope rope(300, 10);
  const HostTensor x = random_tensor(DType::f64, 300, 10, 3);
  const HostTensor y = rounded_to(DType::f64, x);
  rope.rotate(y, 1, 300);
  for (int64_t row = 0; row < 300; ++row) {
    double before = 0, after = 0;
    for (int64_t i = 0; i < 10; ++i) {
      before += get(x, row, i) * get(x, row, i);
      after += get(y, row, i) * get(y, row, i);
    }
    EXPECT_NEAR(before, after, 1e-13);
  }
  EXPECT_TRUE(same_bits(x.view().row_range(0, 1), y.view().row_range(0, 1)));  // position 0
  EXPECT_FALSE(same_bits(x.view().row_range(1, 1), y.view().row_range(1, 1)));
  rope.rotate_back(y, 1, 300);
  EXPECT_LT(relative_distance(y, x), 1e-14);
}

// Relative positions are the purpose of RoPE: the product of two rotated rows depends only on their
// distance.
TEST(RopeTest, ProductsDependOnTheDistance) {
  const Rope rope(50, 8);
  const HostTensor query(DType::f64, 50, 8), key(DType::f64, 50, 8);
  for (int64_t row = 0; row < 50; ++row) {
    randomize(query.view().row_range(row, 1), 1);
    randomize(key.view().row_range(row, 1), 2);
  }
  rope.rotate(query, 1, 50);
  rope.rotate(key, 1, 50);
  const auto product = [&](int64_t q, int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i < 8; ++i) sum += get(query, q, i) * get(key, k, i);
    return sum;
  };
  for (int64_t shift = 0; shift < 40; ++shift) {
    EXPECT_NEAR(product(7 + shift, shift), product(7, 0), 1e-13);
  }
  EXPECT_GT(std::abs(product(7, 0) - product(6, 0)), 1e-3);
}

TEST(RopeTest, LaterRowsAreAtLaterPositions) {
  const Rope rope(9, 4);
  const HostTensor x = random_tensor(DType::f32, 9, 4, 3);
  const HostTensor whole = rounded_to(DType::f32, x), part = rounded_to(DType::f32, x);
  rope.rotate(whole, 1, 9);
  rope.rotate(part.view().row_range(0, 5), 1, 5);
  rope.rotate(part.view().row_range(5, 4), 1, 4, 5);
  EXPECT_TRUE(same_bits(whole, part));
}

// Returns, for each pair, the factor by which scaling slows its rotation. Measures it by rotating
// (1, 0) at position 1.
std::vector<double> slowdowns(const RopeOptions& options, int64_t context = 2) {
  constexpr int64_t kSize = 8, kHalf = kSize / 2;
  const HostTensor row(DType::f64, 1, kSize);
  for (int64_t i = 0; i < kHalf; ++i) set(row, 0, i, 1);
  Rope(context, kSize, options).rotate(row, 1, 1, 1);
  std::vector<double> factors;
  for (int64_t i = 0; i < kHalf; ++i) {
    const double angle = std::atan2(get(row, 0, i + kHalf), get(row, 0, i));
    factors.push_back(std::pow(options.base, -static_cast<double>(i) / kHalf) / angle);
  }
  return factors;
}

TEST(RopeTest, LinearScalingSlowsAllPairs) {
  for (const double factor : slowdowns({.scaling = RopeScaling::linear, .factor = 4})) {
    EXPECT_NEAR(factor, 4, 1e-9);
  }
}

// Over 628 positions, pair 0 turns 100 times, and the other pairs 10, 1 and 0.1 times.
TEST(RopeTest, Llama3ScalingSlowsSlowPairs) {
  const std::vector<double> factors = slowdowns({.scaling = RopeScaling::llama3,
                                                 .factor = 8,
                                                 .original_context = 628,
                                                 .low_turns = 2,
                                                 .high_turns = 20});
  const double turns = 62.8 / (2 * 3.14159265358979323846);
  const double fast = (turns - 2) / 18;
  EXPECT_NEAR(factors[0], 1, 1e-9);
  EXPECT_NEAR(factors[1], 1 / (fast + (1 - fast) / 8), 1e-6);
  EXPECT_NEAR(factors[2], 8, 1e-9);
  EXPECT_NEAR(factors[3], 8, 1e-9);
}

TEST(RopeTest, DynamicScalingTakesALargerBaseBeyondTheOriginalContext) {
  const RopeOptions options{.scaling = RopeScaling::dynamic, .factor = 2, .original_context = 16};
  EXPECT_NEAR(slowdowns(options, 16)[2], 1, 1e-9);
  // The base becomes base * (2 * 2 - 1)^(8 / 6). Pair i uses this base to the power i / 4.
  EXPECT_NEAR(slowdowns(options, 32)[2], std::pow(std::pow(3, 8.0 / 6), 0.5), 1e-9);
}

TEST(RopeTest, RefusesInvalidOptions) {
  EXPECT_THROW(Rope(4, 5), Error);
  for (const RopeOptions& options :
       {RopeOptions{.base = 0}, RopeOptions{.scaling = RopeScaling::linear, .factor = 0},
        RopeOptions{.scaling = RopeScaling::llama3, .factor = 8},
        RopeOptions{.scaling = RopeScaling::llama3,
        .factor = 8,
        .original_context = 8,
        .low_turns = 4,
        .high_turns = 4}}) {
    EXPECT_THROW(Rope(4, 4, options), Error);
  }
}

}  // namespace
}  // namespace tutti::training::testing
