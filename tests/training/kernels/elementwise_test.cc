// Tests elementwise kernels against formulas in double.
#include "training/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/training/support/gradient_check.h"
#include "training/core/random.h"

namespace tutti::training::testing {
namespace {

constexpr std::array kTypes = {DType::f64, DType::f32, DType::bf16, DType::f16};

// Tolerance relative to the largest value: one rounding to the type, plus a little for the
// computation.
double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-14;
    case DType::f32:
      return 1e-6;
    case DType::f16:
      return 0x1p-11 + 1e-6;
    default:
      return 0x1p-8 + 1e-6;
  }
}

// Sizes below, at and above the width of vectors, and a large one.
constexpr std::array<int64_t, 6> kSizes = {1, 7, 16, 17, 33, 1000};

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u))
double gelu_value(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu_value(double x) { return x / (1 + std::exp(-x)); }

void expect_map(const std::function<void(ConstTensor, Tensor)>& kernel,
                const std::function<double(double)>& formula) {
  for (const DType type : kTypes) {
    for (const int64_t size : kSizes) {
      const HostTensor x = random_tensor(type, 1, size, 3, 9);
      std::vector<double> expected = doubles(x);
      for (double& value : expected) value = formula(value);
      HostTensor y(type, 1, size);
      kernel(x, y);
      EXPECT_LE(relative_distance(doubles(y), expected), tolerance_of(type))
          << name(type) << " " << size;
      kernel(x, x);  // in place
      EXPECT_TRUE(same_bits(x, y)) << name(type) << " " << size;
    }
  }
}

TEST(ElementwiseTest, Gelu) { expect_map(gelu, gelu_value); }

TEST(ElementwiseTest, Relu) {
  expect_map(relu, [](double x) { return x < 0 ? 0 : x; });
}

TEST(ElementwiseTest, Scale) {
  expect_map([](ConstTensor x, Tensor y) { scale(x, y, 0.375); },
             [](double x) { return 0.375 * x; });
}

TEST(ElementwiseTest, SwigluAndAdd) {
  for (const DType type : kTypes) {
    for (const int64_t size : kSizes) {
      const HostTensor gate = random_tensor(type, 1, size, 3, 9);
      const HostTensor up = random_tensor(type, 1, size, 4, 2);
      const std::vector<double> g = doubles(gate), u = doubles(up);
      std::vector<double> product(g.size()), sum(g.size());
      for (size_t i = 0; i < g.size(); ++i) {
        product[i] = silu_value(g[i]) * u[i];
        sum[i] = g[i] + u[i];
      }
      HostTensor y(type, 1, size);
      swiglu(gate, up, y);
      EXPECT_LE(relative_distance(doubles(y), product), tolerance_of(type)) << name(type);
      add(gate, up, y);
      EXPECT_LE(relative_distance(doubles(y), sum), tolerance_of(type)) << name(type);
    }
  }
}

// Far from 0, where exp overflows or underflows.
TEST(ElementwiseTest, ActivationsFarFromZero) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    for (const double x : {1e4, 1e15}) {
      HostTensor in(type, 1, 2), ones(type, 1, 2), out(type, 1, 2), slope(type, 1, 2);
      assign(in, std::vector{x, -x});
      assign(ones, std::vector{1.0, 1.0});
      gelu(in, out);
      gelu_backward(in, ones, slope);
      EXPECT_EQ(doubles(out), (std::vector{get(in, 0, 0), 0.0}));
      EXPECT_EQ(doubles(slope), (std::vector{1.0, 0.0}));
      swiglu(in, ones, out);
      EXPECT_EQ(doubles(out), (std::vector{get(in, 0, 0), 0.0}));
      HostTensor up_slope(type, 1, 2);
      swiglu_backward(in, ones, ones, slope, up_slope);
      EXPECT_EQ(doubles(slope), (std::vector{1.0, 0.0}));
      EXPECT_EQ(doubles(up_slope), (std::vector{get(in, 0, 0), 0.0}));
    }
  }
}

void expect_slope(const std::function<void(ConstTensor, Tensor)>& kernel,
                  const std::function<void(ConstTensor, ConstTensor, Tensor)>& backward) {
  const HostTensor x = random_tensor(DType::f64, 3, 33, 5, 4);
  const HostTensor dy = random_tensor(DType::f64, 3, 33, 6);
  HostTensor y(DType::f64, 3, 33), dx(DType::f64, 3, 33);
  backward(x, dy, dx);
  expect_gradient("x", x, dx, [&] {
    kernel(x, y);
    double sum = 0;
    for (int64_t i = 0; i < 99; ++i) sum += get(y, i / 33, i % 33) * get(dy, i / 33, i % 33);
    return sum;
  });
}

TEST(ElementwiseTest, Slopes) {
  const HostTensor other = random_tensor(DType::f64, 3, 33, 7, 2);
  HostTensor unused(DType::f64, 3, 33);
  expect_slope(gelu, gelu_backward);
  expect_slope(
      [&](ConstTensor x, Tensor y) { swiglu(x, other, y); },
      [&](ConstTensor x, ConstTensor dy, Tensor dx) { swiglu_backward(x, other, dy, dx, unused); });
  expect_slope(
      [&](ConstTensor x, Tensor y) { swiglu(other, x, y); },
      [&](ConstTensor x, ConstTensor dy, Tensor dx) { swiglu_backward(other, x, dy, unused, dx); });
}

TEST(ElementwiseTest, ReluBackwardPassesWhatWasPositive) {
  HostTensor y(DType::f32, 1, 3), dy(DType::f32, 1, 3);
  assign(y, std::vector<double>{0, 2, 0.5});
  assign(dy, std::vector<double>{3, 4, -5});
  relu_backward(y, dy, dy);
  EXPECT_EQ(doubles(dy), (std::vector<double>{0, 4, -5}));
}

TEST(ElementwiseTest, AllFinite) {
  for (const DType type : kTypes) {
    for (const int64_t size : kSizes) {
      const HostTensor x = random_tensor(type, 1, size, 3);
      EXPECT_TRUE(all_finite(x).get());
      for (const double bad : {NAN, INFINITY, -INFINITY}) {
        for (const int64_t place : {int64_t{0}, size / 2, size - 1}) {
          const HostTensor y = rounded_to(type, x);
          set(y, 0, place, bad);
          EXPECT_FALSE(all_finite(y).get()) << name(type) << " " << bad << " at " << place;
        }
      }
    }
  }
}

TEST(ElementwiseTest, Convert) {
  constexpr std::array kSmall = {DType::f32, DType::bf16, DType::f16};
  for (const DType from : kSmall) {
    for (const DType to : kSmall) {
      const HostTensor x = random_tensor(from, 3, 33, 3, 100);
      HostTensor y(to, 3, 33);
      convert(x, y);
      EXPECT_TRUE(same_bits(y, rounded_to(to, x))) << name(from) << " to " << name(to);
    }
  }
}

TEST(ElementwiseTest, ColumnSumsAreAccumulatedInFloat) {
  for (const DType type : kTypes) {
    Arena arena(1 << 20);
    // Adds 1000 times 0.25. A sum in bf16 would stop growing at 64.
    const HostTensor dy(type, 1000, 3, 2);
    assign(dy, std::vector<double>(3000, 0.25));
    HostTensor sums(value_type(type), 1, 3);
    assign(sums, std::vector<double>{1, 2, 3});
    add_column_sums(dy, sums, arena);
    EXPECT_EQ(doubles(sums), (std::vector<double>{251, 252, 253})) << name(type);
    EXPECT_EQ(arena.mark(), 0u);
  }
}

// An element is kept if its random number is large enough.
TEST(ElementwiseTest, DropoutIsAFunctionOfSeedStreamAndIndex) {
  constexpr double kP = 0.3;
  constexpr DropoutAt kAt{.seed = 5, .stream = 9, .index = (uint64_t{1} << 40) + 3};
  for (const DType type : kTypes) {
    const HostTensor x = random_tensor(type, 10, 33, 4);
    HostTensor y(type, 10, 33);
    dropout(x, y, kP, kAt);
    for (int64_t i = 0; i < 330; ++i) {
      const uint64_t bits = random_bits(kAt.seed, kAt.stream, kAt.index + static_cast<uint64_t>(i));
      const bool kept = static_cast<double>(bits >> 32) >= kP * 0x1p32;
      const double value = get(x, i / 33, i % 33);
      EXPECT_NEAR(get(y, i / 33, i % 33), kept ? value / (1 - kP) : 0, tolerance_of(type) * 2);
    }
  }
}

// The sum is rounded once, so that it is at least as close to the exact sum as the result of two
// kernels.
TEST(ElementwiseTest, DropoutAddDropsTheSameElements) {
  constexpr double kP = 0.3;
  constexpr DropoutAt kAt{.seed = 5, .stream = 9, .index = 77};
  for (const DType type : kTypes) {
    const HostTensor x = random_tensor(type, 10, 33, 4), residual = random_tensor(type, 10, 33, 5);
    HostTensor dropped(type, 10, 33), y(type, 10, 33), over_residual(type, 10, 33);
    dropout(x, dropped, kP, kAt);
    dropout_add(x, residual, y, kP, kAt);
    copy(residual, over_residual);
    dropout_add(x, over_residual, over_residual, kP, kAt);
    EXPECT_TRUE(same_bits(over_residual, y)) << name(type);
    for (int64_t i = 0; i < 330; ++i) {
      const double kept = get(dropped, i / 33, i % 33), before = get(residual, i / 33, i % 33);
      EXPECT_NEAR(get(y, i / 33, i % 33), before + kept, tolerance_of(type) * 2) << name(type);
      if (kept == 0) {
        EXPECT_EQ(get(y, i / 33, i % 33), before) << name(type);
      }
    }
  }
}

TEST(ElementwiseTest, RefusesWhatDoesNotFit) {
  HostTensor a(DType::f32, 2, 3), b(DType::f32, 3, 2), wide(DType::f64, 2, 3);
  HostTensor spread(DType::f32, 2, 3, 1);
  EXPECT_THROW(gelu(a, b), Error);
  EXPECT_THROW(add(a, a, wide), Error);
  EXPECT_THROW(dropout_add(a, b, a, 0.5, {}), Error);
  EXPECT_THROW(relu(a, spread), Error);
  EXPECT_THROW(convert(HostTensor(DType::bf16, 2, 3), wide), Error);
}

TEST(ElementwiseTest, ConvertsBetweenFloatAndDouble) {
  const HostTensor x = random_tensor(DType::f32, 2, 3, 1);
  HostTensor wide(DType::f64, 2, 3), back(DType::f32, 2, 3);
  convert(x, wide);
  EXPECT_EQ(doubles(wide), doubles(x));
  convert(wide, back);
  EXPECT_TRUE(same_bits(back, x));
}

}  // namespace
}  // namespace tutti::training::testing
