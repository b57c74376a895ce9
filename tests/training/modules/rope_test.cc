#include "training/modules/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "tests/training/support/host_tensor.h"

namespace tutti::training::testing {
namespace {

// Pairs (i, i + half) as complex numbers, times exp(i position base^(-2 i / head_size)).
TEST(RopeTest, EqualsComplexRotation) {
  constexpr int64_t kContext = 5, kHeads = 2, kSize = 6, kHalf = kSize / 2;
  const Rope rope(kContext, kSize, 100);
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    // Two samples; a third head, which is left alone.
    const HostTensor x = random_tensor(type, 2 * kContext, 3 * kSize, 3);
    const HostTensor y = rounded_to(type, x);
    rope.rotate(y, kHeads);
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
  rope.rotate(y, 1);
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
  rope.rotate_back(y, 1);
  EXPECT_LT(relative_distance(y, x), 1e-14);
}

// What it is for: a product of two rotated rows depends on the distance of their places only.
TEST(RopeTest, ProductsDependOnTheDistance) {
  const Rope rope(50, 8);
  const HostTensor query(DType::f64, 50, 8), key(DType::f64, 50, 8);
  for (int64_t row = 0; row < 50; ++row) {
    randomize(query.view().row_range(row, 1), 1);
    randomize(key.view().row_range(row, 1), 2);
  }
  rope.rotate(query, 1);
  rope.rotate(key, 1);
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

TEST(RopeTest, RefusesOddHeads) {
  try {
    Rope(4, 5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace tutti::training::testing
