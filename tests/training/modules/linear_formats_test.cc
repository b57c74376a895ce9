// Tests dense layers whose products are computed in a narrow format.
#include <gtest/gtest.h>

#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "training/modules/linear.h"

namespace tutti::training::testing {
namespace {

class LinearFormats : public ::testing::TestWithParam<GemmFormat> {};
INSTANTIATE_TEST_SUITE_P(All, LinearFormats,
                         ::testing::Values(GemmFormat::tf32, GemmFormat::fp8, GemmFormat::mxfp8));

// 1 + e, rounded as an operand, becomes 1, so that each product below is 0. If instead the product
// were rounded, it would be e, which the format represents exactly.
TEST_P(LinearFormats, RoundBeforeTheyMultiply) {
  const double e = GetParam() == GemmFormat::tf32 ? 0x1p-12 : 0x1p-4;
  for (const int slices : {1, 2}) {
    SCOPED_TRACE(slices);
    TestPass test(DType::f32);
    test.pass.gemm_format = GetParam();
    test.pass.slices = slices;
    const auto layer = [&](bool keeps_precision, int64_t inputs, int64_t outputs,
                           const std::vector<double>& x, const std::vector<double>& weights,
                           const std::vector<double>& dy) {
      ParameterTable table;
      const Linear linear(table, "l", inputs, outputs,
                          {.bias = false, .keeps_precision = keeps_precision});
      const BoundParameters parameters(table, DType::f32);
      assign(parameters.value(0), weights);
      const int64_t rows = static_cast<int64_t>(x.size()) / inputs;
      HostTensor input(DType::f32, rows, inputs), gradient(DType::f32, rows, outputs);
      assign(input, x);
      assign(gradient, dy);
      Linear::Saved saved;
      std::vector<double> found = doubles(linear.forward(test.pass, input, saved));
      const std::vector<double> dx = doubles(linear.backward(test.pass, gradient, saved));
      const std::vector<double> dw = doubles(parameters.gradient(0));
      found.insert(found.end(), dx.begin(), dx.end());
      found.insert(found.end(), dw.begin(), dw.end());
      return found;
    };
    // The results are y, dx and dW.
    using Found = std::vector<double>;
    EXPECT_EQ(layer(false, 2, 1, {1 + e, -1}, {1, 1}, {1}), (Found{0, 1, 1, 1, -1}));
    EXPECT_EQ(layer(true, 2, 1, {1 + e, -1}, {1, 1}, {1}), (Found{e, 1, 1, 1 + e, -1}));
    EXPECT_EQ(layer(false, 1, 2, {1}, {1, 1}, {1 + e, -1}), (Found{1, 1, 0, 1, -1}));
    EXPECT_EQ(layer(true, 1, 2, {1}, {1, 1}, {1 + e, -1}), (Found{1, 1, e, 1 + e, -1}));
    EXPECT_EQ(layer(false, 1, 1, {1, 1}, {1}, {1 + e, -1}), (Found{1, 1, 1, -1, 0}));
    EXPECT_EQ(layer(true, 1, 1, {1, 1}, {1}, {1 + e, -1}), (Found{1, 1, 1 + e, -1, e}));
  }
}

// In an nvfp4 block whose largest value is 6, the value 5 is halfway between 4 and 6 and becomes 4.
TEST(LinearFormat, Nvfp4RoundsBeforeItMultiplies) {
  TestPass test(DType::f32);
  ParameterTable table;
  const Linear linear(table, "l", 3, 1, {.bias = false});
  const BoundParameters parameters(table, DType::f32);
  assign(parameters.value(0), std::vector<double>{1, 1, 1});
  HostTensor x(DType::f32, 1, 3);
  assign(x, std::vector<double>{6, 5, -4});
  Linear::Saved saved;
  EXPECT_EQ(get(linear.forward(test.pass, x, saved), 0, 0), 7);
  test.pass.gemm_format = GemmFormat::nvfp4;
  EXPECT_NEAR(get(linear.forward(test.pass, x, saved), 0, 0), 6, 1e-6);
}

// Stochastic rounding of gradients repeats for the same micro-batch and differs for another one.
TEST(LinearFormat, Nvfp4DrawsByMicroBatch) {
  const auto gradients = [](uint64_t seed, uint64_t first_sample, const char* name) {
    TestPass test(DType::f32);
    test.pass.gemm_format = GemmFormat::nvfp4;
    test.pass.seed = seed;
    test.batch.first_sample = first_sample;
    ParameterTable table;
    const Linear linear(table, name, 40, 50, {.bias = false});
    const BoundParameters parameters(table, DType::f32);
    randomize(parameters.value(0), 9);
    const HostTensor x = random_tensor(DType::f32, 30, 40, 1);
    const HostTensor dy = random_tensor(DType::f32, 30, 50, 2);
    Linear::Saved saved;
    linear.forward(test.pass, x, saved);
    std::vector<double> found = doubles(linear.backward(test.pass, dy, saved));
    const std::vector<double> weights = doubles(parameters.gradient(0));
    found.insert(found.end(), weights.begin(), weights.end());
    return found;
  };
  const std::vector<double> first = gradients(1, 8, "l");
  EXPECT_EQ(gradients(1, 8, "l"), first);
  EXPECT_NE(gradients(2, 8, "l"), first);
  EXPECT_NE(gradients(1, 9, "l"), first);
  EXPECT_NE(gradients(1, 8, "m"), first);
}

}  // namespace
}  // namespace tutti::training::testing
