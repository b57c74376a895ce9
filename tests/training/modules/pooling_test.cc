#include "training/modules/pooling.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

constexpr std::array kTypes = {DType::f64, DType::f32, DType::bf16, DType::f16};

Differentiable differentiable(const Pooling& pooling, Pooling::Saved& saved) {
  return {[&](Pass& pass, ConstTensor x) { return pooling.forward(pass, x, saved); },
          [&](Pass& pass, ConstTensor dy) { return pooling.backward(pass, dy, saved); }};
}

// The values differ by more than the step of the finite differences, so that the maximum does not
// change.
HostTensor distinct_values(int64_t rows, int64_t cols) {
  HostTensor x(DType::f64, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    set(x, i / cols, i % cols, 0.01 * static_cast<double>(i * 7919 % (rows * cols)));
  }
  return x;
}

TEST(PoolingTest, Gradients) {
  for (const PoolingKind kind : {PoolingKind::max, PoolingKind::average}) {
    for (const Window window : {Window{2, 2, 2, 0}, Window{3, 3, 1, 1}, Window{3, 3, 2, 1},
                                Window{2, 3, 1, 0}, Window{7, 5, 1, 0}, Window{1, 1, 2, 0}}) {
      for (const int64_t samples : {1, 3}) {
        for (const int64_t channels : {3, 5}) {
          SCOPED_TRACE(::testing::Message()
                       << (kind == PoolingKind::max ? "max" : "average") << " of windows "
                       << window.height << " x " << window.width << ", stride " << window.stride
                       << ", padding " << window.padding << ", " << channels << " channels");
          const ImageShape input{7, 5, channels};
          const Pooling pooling(kind, input, window);
          ParameterTable table;
          TestPass test;
          Pooling::Saved saved;
          expect_gradients(differentiable(pooling, saved), table, test,
                           distinct_values(samples, input.size()));
        }
      }
    }
  }
}

// 3 x 3 pixels of two channels. The second channel is the negative of the first one.
TEST(PoolingTest, Values) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(name(dtype));
    const ImageShape input{3, 3, 2};
    HostTensor x(dtype, 1, 18);
    const std::vector<double> pixels = {1, 2, 3, 6, 5, 4, 7, 8, 12};
    for (size_t i = 0; i < pixels.size(); ++i) {
      set(x, 0, static_cast<int64_t>(2 * i), pixels[i]);
      set(x, 0, static_cast<int64_t>(2 * i + 1), -pixels[i]);
    }
    TestPass test(dtype);
    Pooling::Saved saved;
    const Pooling largest(PoolingKind::max, input, {2, 2, 1, 0});
    EXPECT_EQ(doubles(largest.forward(test.pass, x, saved)),
              (std::vector<double>{6, -1, 5, -2, 8, -5, 12, -4}));
    HostTensor dy(dtype, 1, 8);
    assign(dy, std::vector<double>{1, 10, 2, 20, 4, 40, 8, 80});
    EXPECT_EQ(doubles(largest.backward(test.pass, dy, saved)),
              (std::vector<double>{0, 10, 0, 20, 0, 0, 1, 0, 2, 40, 0, 80, 0, 0, 4, 0, 8, 0}));

    const Pooling mean(PoolingKind::average, input, {2, 2, 2, 1});  // absent pixels count as 0
    EXPECT_EQ(doubles(mean.forward(test.pass, x, saved)),
              (std::vector<double>{0.25, -0.25, 1.25, -1.25, 3.25, -3.25, 7.25, -7.25}));
  }
}

TEST(GlobalAverageTest, IsTheMeanOfEachChannel) {
  const ImageShape input{2, 4, 70};  // more channels than one loop iteration sums
  const GlobalAverage average(input);
  HostTensor x(DType::f32, 2, input.size());
  for (int64_t i = 0; i < 2 * input.size(); ++i) {
    const int64_t channel = i % 70;
    set(x, i / input.size(), i % input.size(), static_cast<double>(channel + i / 70 % 8));
  }
  TestPass test(DType::f32);
  const std::vector<double> y = doubles(average.forward(test.pass, x));
  for (size_t i = 0; i < 140; ++i) ASSERT_EQ(y[i], static_cast<double>(i % 70) + 3.5);
}

// The first of equal values gets the gradient. Gradients of overlapping windows are summed before
// they are rounded.
TEST(PoolingTest, EqualValuesAndRounding) {
  const ImageShape input{1, 3, 1};
  const Pooling pooling(PoolingKind::max, input, {1, 2, 1, 0});
  TestPass test(DType::bf16);
  Pooling::Saved saved;
  HostTensor x(DType::bf16, 2, 3);
  assign(x, std::vector<double>{0, 0, 0, 0, 1, 0});
  pooling.forward(test.pass, x, saved);
  HostTensor dy(DType::bf16, 2, 2);
  assign(dy, std::vector<double>{1, 2, 256, 1});
  EXPECT_EQ(doubles(pooling.backward(test.pass, dy, saved)),
            (std::vector<double>{1, 2, 0, 0, 256, 0}));  // 257 rounds to even
}

TEST(PoolingTest, NanIsTheLargest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kTypes) {
    const Pooling pooling(PoolingKind::max, {1, 4, 1}, {1, 4, 1, 0});
    TestPass test(dtype);
    Pooling::Saved saved;
    HostTensor x(dtype, 1, 4);
    assign(x, std::vector<double>{1, nan, 5, 2});
    const double y = get(pooling.forward(test.pass, x, saved), 0, 0);
    EXPECT_TRUE(y != y) << name(dtype);
  }
}

TEST(PoolingTest, BadWindows) {
  const auto make = [](const Window& window) {
    return Pooling(PoolingKind::max, {20, 20, 1}, window);
  };
  EXPECT_NO_THROW(make({16, 16, 1, 0}));
  EXPECT_THROW(make({16, 17, 1, 0}), Error);  // the windows have too many pixels
  EXPECT_THROW(make({21, 1, 1, 0}), Error);
  EXPECT_THROW(make({2, 2, 1, 2}), Error);  // a window could be entirely in the padding
  EXPECT_THROW(make({2, 2, 0, 0}), Error);
}

}  // namespace
}  // namespace tutti::training::testing
