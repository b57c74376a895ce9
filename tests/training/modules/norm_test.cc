#include "training/modules/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

Differentiable differentiable(const Norm& norm, Norm::Saved& saved) {
  return {[&](Pass& pass, ConstTensor x) { return norm.forward(pass, x, saved); },
          [&](Pass& pass, ConstTensor dy) { return norm.backward(pass, dy, saved); }};
}

TEST(NormTest, Values) {
  TestPass test;
  Norm::Saved saved;
  HostTensor x(DType::f64, 1, 4);
  assign(x, std::vector<double>{1, 3, 5, 7});
  const std::vector<double> gain = {1, 2, 1, 1}, bias = {0, 0, 0, 5};
  {
    ParameterTable table;
    // The mean is 4 and the variance 5; with an epsilon of 4, divides by sqrt(9) = 3.
    const Norm norm(table, "n", 4, NormKind::layer, 4);
    const BoundParameters parameters(table, DType::f64);
    assign(parameters.value(0), gain);
    assign(parameters.value(1), bias);
    const std::vector<double> expected = {-1, -2.0 / 3, 1.0 / 3, 6};
    EXPECT_LT(relative_distance(doubles(norm.forward(test.pass, x, saved)), expected), 1e-15);
  }
  ParameterTable table;
  // The mean square is 21; with an epsilon of 4, divides by sqrt(25) = 5.
  const Norm norm(table, "n", 4, NormKind::rms, 4);
  const BoundParameters parameters(table, DType::f64);
  assign(parameters.value(0), gain);
  const std::vector<double> expected = {0.2, 1.2, 1, 1.4};
  EXPECT_LT(relative_distance(doubles(norm.forward(test.pass, x, saved)), expected), 1e-15);
}

TEST(NormTest, Gradients) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const int64_t rows : {1, 4}) {
      for (const int64_t width : {1, 2, 5, 33}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << width);
        ParameterTable table;
        const Norm norm(table, "n", width, kind);
        ASSERT_EQ(table.size(), kind == NormKind::layer ? 2 : 1);
        TestPass test;
        Norm::Saved saved;
        const HostTensor x = random_tensor(DType::f64, rows, width, 3, 2);
        expect_gradients(differentiable(norm, saved), table, test, x);
      }
    }
  }
}

// The mean is large compared with the deviation. A variance computed as the difference of two
// squares would be lost in f32.
TEST(NormTest, LargeMean) {
  ParameterTable table, wide_table;
  const Norm norm(table, "n", 64, NormKind::layer), wide(wide_table, "n", 64, NormKind::layer);
  const BoundParameters parameters(table, DType::f32, 0),
      wide_parameters(wide_table, DType::f64, 0);
  HostTensor x(DType::f32, 1, 64);
  for (int64_t i = 0; i < 64; ++i) set(x, 0, i, 10000 + static_cast<double>(i % 8) / 8);
  TestPass test(DType::f32);
  Norm::Saved saved, wide_saved;
  const Tensor y = norm.forward(test.pass, x, saved);
  const Tensor expected = wide.forward(test.pass, rounded_to(DType::f64, x), wide_saved);
  EXPECT_LT(relative_distance(y, expected), 1e-3);
}

TEST(NormTest, SmallTypesAreCloseToTheWideOne) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      // y and dx are rounded once.
      const double tolerance = type == DType::f32 ? 2e-6 : type == DType::bf16 ? 0x1p-7 : 0x1p-10;
      ParameterTable table, wide_table;
      const Norm norm(table, "n", 33, kind), wide_norm(wide_table, "n", 33, kind);
      const BoundParameters parameters(table, type);
      BoundParameters wide_parameters(wide_table, DType::f64);
      wide_parameters.copy_values(parameters);
      TestPass test;
      Norm::Saved saved, wide_saved;
      const HostTensor x = random_tensor(type, 9, 33, 3, 2), dy = random_tensor(type, 9, 33, 4);
      const HostTensor wide_x = rounded_to(DType::f64, x), wide_dy = rounded_to(DType::f64, dy);
      EXPECT_LT(relative_distance(norm.forward(test.pass, x, saved),
                                  wide_norm.forward(test.pass, wide_x, wide_saved)),
                tolerance);
      EXPECT_LT(relative_distance(norm.backward(test.pass, dy, saved),
                                  wide_norm.backward(test.pass, wide_dy, wide_saved)),
                tolerance);
      for (int i = 0; i < parameters.size(); ++i) {
        EXPECT_LT(relative_distance(parameters.gradient(i), wide_parameters.gradient(i)), 2e-6);
      }
    }
  }
}

TEST(NormTest, RefusesWhatDoesNotFit) {
  ParameterTable table;
  const Norm norm(table, "n", 4, NormKind::rms);
  TestPass test;
  Norm::Saved saved;
  const HostTensor x(DType::f64, 2, 4);
  EXPECT_THROW(norm.forward(test.pass, x, saved), Error);  // the gain has no memory yet
  const BoundParameters parameters(table, DType::f64);
  EXPECT_NO_THROW(norm.forward(test.pass, x, saved));
  EXPECT_THROW(norm.forward(test.pass, HostTensor(DType::f64, 2, 5), saved), Error);
  EXPECT_THROW(norm.forward(test.pass, HostTensor(DType::f32, 2, 4), saved), Error);
}

}  // namespace
}  // namespace tutti::training::testing
