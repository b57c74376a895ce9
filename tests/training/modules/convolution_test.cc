#include "training/modules/convolution.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

Differentiable differentiable(const Convolution& convolution, Convolution::Saved& saved) {
  return {[&](Pass& pass, ConstTensor x) { return convolution.forward(pass, x, saved); },
          [&](Pass& pass, ConstTensor dy) { return convolution.backward(pass, dy, saved); }};
}

struct Case {
  int64_t samples;
  ImageShape input;
  ConvolutionOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t channels : {3, 5}) {
    for (const int64_t kernel : {1, 3}) {
      for (const int64_t stride : {1, 2}) {
        for (const int64_t padding : {0, 1}) {
          if (padding >= kernel) continue;
          all.push_back({.samples = channels == 3 ? 3 : 1,
                         .input = {.height = 7, .width = 5, .channels = channels},
                         .options = {.outputs = 8 - channels,
                                     .kernel = kernel,
                                     .stride = stride,
                                     .padding = padding,
                                     .bias = padding == 1}});
        }
      }
    }
  }
  // The vector code has separate loops for whole blocks of channels, and for one channel.
  all.push_back({2, {6, 6, 16}, {.outputs = 32, .kernel = 3, .stride = 2, .padding = 1}});
  all.push_back({2, {6, 6, 1}, {.outputs = 16, .kernel = 3, .stride = 1, .padding = 1}});
  return all;
}

::testing::Message describe(const Case& c) {
  return ::testing::Message() << c.samples << " images of " << c.input.channels << " channels to "
                              << c.options.outputs << ", kernel " << c.options.kernel << ", stride "
                              << c.options.stride << ", padding " << c.options.padding;
}

// The two input channels have the kernels 1 2 / 3 4 and 1 0 / 0 -1, and the bias is 7. The expected
// values are computed by hand.
TEST(ConvolutionTest, Values) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    ParameterTable table;
    const Convolution convolution(
        table, "c", {.height = 2, .width = 3, .channels = 2},
        {.outputs = 1, .kernel = 2, .stride = 2, .padding = 1, .bias = true});
    const BoundParameters parameters(table, dtype);
    EXPECT_EQ(table.specs()[0].shape, (std::vector<int64_t>{1, 2, 2, 2}));
    assign(parameters.value(0), std::vector<double>{1, 2, 3, 4, 1, 0, 0, -1});
    assign(parameters.value(1), std::vector<double>{7});
    TestPass test(dtype);
    Convolution::Saved saved;
    HostTensor x(dtype, 1, 12);
    // The first channel has the pixels 1 2 3 / 4 5 6, the second one 8 0 16 / 0 32 64.
    assign(x, std::vector<double>{1, 8, 2, 0, 3, 16, 4, 0, 5, 32, 6, 64});
    const Tensor y = convolution.forward(test.pass, x, saved);
    // The four windows begin at (-1, -1), (-1, 1), (1, -1) and (1, 1).
    EXPECT_EQ(convolution.output(), (ImageShape{2, 2, 1}));
    EXPECT_EQ(doubles(y),
              (std::vector<double>{4 - 8 + 7, 6 + 12 - 16 + 7, 8 - 0 + 7, 5 + 12 + 32 + 7}));
  }
}

TEST(ConvolutionTest, Gradients) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    ParameterTable table;
    const Convolution convolution(table, "c", c.input, c.options);
    TestPass test;
    Convolution::Saved saved;
    const HostTensor x = random_tensor(DType::f64, c.samples, c.input.size(), 3);
    expect_gradients(differentiable(convolution, saved), table, test, x,
                     {.every = c.input.channels == 16 ? 37 : 1});
  }
}

// Sums are in float, and 16-bit results are rounded once. All types get the same inputs, rounded to
// the narrowest type.
TEST(ConvolutionTest, OtherTypesEqualDoubles) {
  struct Tolerance {
    DType dtype;
    double sums;     // gradients of weights, which are kept in f32
    double results;  // half a unit in the last place of the type, plus a small margin
  };
  for (const Tolerance tolerance :
       {Tolerance{DType::f32, 1e-6, 1e-6}, Tolerance{DType::bf16, 1e-6, 0.0041},
        Tolerance{DType::f16, 1e-6, 0.00051}}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(describe(c) << " in " << name(tolerance.dtype));
      ParameterTable table, exact_table;
      const Convolution convolution(table, "c", c.input, c.options);
      const Convolution exact(exact_table, "c", c.input, c.options);
      const BoundParameters parameters(table, tolerance.dtype);
      BoundParameters exact_parameters(exact_table, DType::f64);
      exact_parameters.copy_values(parameters);
      TestPass test(tolerance.dtype), exact_test;
      Convolution::Saved saved, exact_saved;
      const HostTensor x = random_tensor(tolerance.dtype, c.samples, c.input.size(), 3);
      const HostTensor dy =
          random_tensor(tolerance.dtype, c.samples, convolution.output().size(), 4);
      const HostTensor exact_x = rounded_to(DType::f64, x);
      const HostTensor exact_dy = rounded_to(DType::f64, dy);
      EXPECT_LT(relative_distance(convolution.forward(test.pass, x, saved),
                                  exact.forward(exact_test.pass, exact_x, exact_saved)),
                tolerance.results);
      EXPECT_LT(relative_distance(convolution.backward(test.pass, dy, saved),
                                  exact.backward(exact_test.pass, exact_dy, exact_saved)),
                tolerance.results);
      for (int i = 0; i < table.size(); ++i) {
        EXPECT_LT(relative_distance(parameters.gradient(i), exact_parameters.gradient(i)),
                  tolerance.sums);
      }
    }
  }
}

TEST(ConvolutionTest, WeightsLater) {
  ParameterTable table;
  const Convolution convolution(table, "c", {4, 4, 2}, {.outputs = 3, .bias = true});
  const BoundParameters parameters(table, DType::f32);
  const HostTensor x = random_tensor(DType::f32, 2, 32, 3);
  const HostTensor dy = random_tensor(DType::f32, 2, 12, 4);
  TestPass test(DType::f32);
  Convolution::Saved saved;
  convolution.forward(test.pass, x, saved);
  test.pass.split = true;
  convolution.backward(test.pass, dy, saved);
  EXPECT_EQ(doubles(parameters.gradient(0)), std::vector<double>(54));
  ASSERT_EQ(test.pass.weight_work.size(), 1u);
  test.pass.weight_work[0]();
  const std::vector<double> later = doubles(parameters.gradient(0));
  EXPECT_NE(later, std::vector<double>(54));

  ParameterTable first_table;
  const Convolution first(first_table, "c", {4, 4, 2}, {.outputs = 3, .bias = true});
  const BoundParameters first_parameters(first_table, DType::f32);
  test.pass.split = false;
  first.forward(test.pass, x, saved);
  first.backward_first(test.pass, dy, saved);
  EXPECT_EQ(doubles(first_parameters.gradient(0)), later);
}

TEST(ConvolutionTest, NoImages) {
  ParameterTable table;
  const Convolution convolution(table, "c", {4, 4, 2}, {.outputs = 3});
  const BoundParameters parameters(table, DType::f32);
  TestPass test(DType::f32);
  Convolution::Saved saved;
  const Tensor y = convolution.forward(test.pass, HostTensor(DType::f32, 0, 32), saved);
  EXPECT_EQ(y.rows, 0);
  EXPECT_EQ(convolution.backward(test.pass, y, saved).rows, 0);
  EXPECT_EQ(doubles(parameters.gradient(0)), std::vector<double>(54));
}

TEST(ConvolutionTest, WindowsThatDoNotFit) {
  ParameterTable table;
  const auto make = [&](const ImageShape& input, const ConvolutionOptions& options) {
    const Convolution convolution(table, "c", input, options);
  };
  EXPECT_THROW(make({2, 5, 1}, {.outputs = 1}), Error);
  EXPECT_THROW(make({5, 2, 1}, {.outputs = 1}), Error);
  EXPECT_THROW(make({5, 5, 0}, {.outputs = 1}), Error);
  EXPECT_THROW(make({5, 5, 1}, {.outputs = 0}), Error);
  EXPECT_THROW(make({5, 5, 1}, {.outputs = 1, .stride = 0}), Error);
  EXPECT_THROW(make({5, 5, 1}, {.outputs = 1, .kernel = 1, .padding = 1}), Error);
  EXPECT_THROW(make({5, 5, 1}, {.outputs = 1, .padding = -1}), Error);
  EXPECT_EQ(table.size(), 0);
}

}  // namespace
}  // namespace tutti::training::testing
