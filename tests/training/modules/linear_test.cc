#include "training/modules/linear.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/training/support/gradient_check.h"

namespace tutti::training::testing {
namespace {

Differentiable differentiable(const Linear& linear, Linear::Saved& saved) {
  return {[&](Pass& pass, ConstTensor x) { return linear.forward(pass, x, saved); },
          [&](Pass& pass, ConstTensor dy) { return linear.backward(pass, dy, saved); }};
}

TEST(LinearTest, Values) {
  ParameterTable table;
  const Linear linear(table, "l", 2, 3);
  const BoundParameters parameters(table, DType::f64);
  assign(parameters.value(0), std::vector<double>{1, 2, 3, 4, 5, 6});  // outputs x inputs
  assign(parameters.value(1), std::vector<double>{10, 20, 30});
  TestPass test;
  Linear::Saved saved;
  HostTensor x(DType::f64, 1, 2);
  assign(x, std::vector<double>{1, -1});
  EXPECT_EQ(doubles(linear.forward(test.pass, x, saved)), (std::vector<double>{9, 19, 29}));
}

TEST(LinearTest, Gradients) {
  for (const bool bias : {false, true}) {
    for (const int64_t rows : {1, 4}) {
      for (const int64_t inputs : {1, 7, 33}) {
        for (const int64_t outputs : {1, 7, 33}) {
          SCOPED_TRACE(::testing::Message() << rows << " rows " << inputs << " to " << outputs);
          ParameterTable table;
          const Linear linear(table, "l", inputs, outputs, {.bias = bias});
          ASSERT_EQ(table.size(), bias ? 2 : 1);
          TestPass test;
          Linear::Saved saved;
          const HostTensor x = random_tensor(DType::f64, rows, inputs, 3);
          expect_gradients(differentiable(linear, saved), table, test, x);
        }
      }
    }
  }
}

TEST(LinearTest, SharedWeight) {
  ParameterTable table;
  const Parameter* weight = table.add("w", {5, 7}, {Initial::Kind::normal, 1});
  const Linear linear(table, weight, 7, 5);
  TestPass test;
  Linear::Saved saved;
  const HostTensor x = random_tensor(DType::f64, 3, 7, 3);
  expect_gradients(differentiable(linear, saved), table, test, x);
}

TEST(LinearTest, NoRows) {
  ParameterTable table;
  const Linear linear(table, "l", 3, 4);
  const BoundParameters parameters(table, DType::f32);
  TestPass test(DType::f32);
  Linear::Saved saved;
  const HostTensor x(DType::f32, 0, 3);
  const Tensor y = linear.forward(test.pass, x, saved);
  EXPECT_EQ(y.rows, 0);
  EXPECT_EQ(linear.backward(test.pass, y, saved).rows, 0);
  EXPECT_EQ(doubles(parameters.gradient(0)), std::vector<double>(12));
  EXPECT_EQ(doubles(parameters.gradient(1)), std::vector<double>(4));
}

// Writes into memory of the caller, and runs each half of the backward pass separately.
TEST(LinearTest, ComputesInParts) {
  ParameterTable table;
  const Linear linear(table, "l", 7, 5);
  const BoundParameters parameters(table, DType::f64);
  TestPass test;
  Linear::Saved saved;
  const HostTensor x = random_tensor(DType::f64, 3, 7, 3), dy = random_tensor(DType::f64, 3, 5, 4);
  HostTensor y(DType::f64, 3, 5, 2);
  linear.forward(test.pass, x, saved, y);
  EXPECT_TRUE(same_bits(y, linear.forward(test.pass, x, saved)));
  EXPECT_TRUE(y.gaps_untouched());
  linear.backward_input(test.pass, dy, saved);
  EXPECT_EQ(doubles(parameters.gradient(0)), std::vector<double>(35));
  linear.backward_weight(test.pass, saved);
  const HostTensor apart = rounded_to(DType::f64, parameters.gradient(0));
  BoundParameters again(table, DType::f64);
  linear.backward(test.pass, dy, saved);
  EXPECT_TRUE(same_bits(apart, again.gradient(0)));
}

// Adds 4099 rows of ones. No 16-bit type can represent the sum.
TEST(LinearTest, GradientsAreAccumulatedInF32) {
  for (const DType type : {DType::bf16, DType::f16}) {
    ParameterTable table;
    const Linear linear(table, "l", 1, 1);
    const BoundParameters parameters(table, type);
    TestPass test(type);
    Linear::Saved saved;
    const HostTensor ones(type, 4099, 1);
    assign(ones, std::vector<double>(4099, 1));
    linear.forward(test.pass, ones, saved);
    linear.backward(test.pass, ones, saved);
    EXPECT_EQ(get(parameters.gradient(0), 0, 0), 4099) << name(type);
    EXPECT_EQ(get(parameters.gradient(1), 0, 0), 4099) << name(type);
  }
}

}  // namespace
}  // namespace tutti::training::testing
