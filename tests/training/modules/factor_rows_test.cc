#include "training/modules/factor_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "training/modules/linear.h"

namespace tutti::training::testing {
namespace {

std::shared_ptr<std::byte[]> allocate(size_t bytes) { return std::make_shared<std::byte[]>(bytes); }

HostTensor whole_numbers(DType dtype, int64_t rows, int64_t cols, int64_t first) {
  HostTensor tensor(dtype, rows, cols);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      set(tensor, row, col, static_cast<double>((first + 5 * row + 3 * col) % 7 - 3));
    }
  }
  return tensor;
}

// Rows are added in several parts. After clear(), which keeps the memory, they are added again.
TEST(FactorRowsTest, MakeTheGradient) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    FactorRows rows(5, 3, dtype, allocate);
    int64_t bytes = 0;
    for (int step = 0; step < 3; ++step) {
      HostTensor gradient(DType::f32, 3, 5), expected(DType::f32, 3, 5);
      for (const int64_t count : {2, 0, 1, 4}) {
        const HostTensor x = whole_numbers(dtype, count, 5, step + count);
        const HostTensor dy = whole_numbers(dtype, count, 3, step);
        rows.add(x, dy);
        for (int64_t row = 0; row < count; ++row) {
          for (int64_t out = 0; out < 3; ++out) {
            for (int64_t in = 0; in < 5; ++in) {
              set(expected, out, in, get(expected, out, in) + get(dy, row, out) * get(x, row, in));
            }
          }
        }
      }
      EXPECT_EQ(rows.rows(), 7);
      FactorRows::multiply(rows.all(), gradient);
      EXPECT_EQ(doubles(gradient), doubles(expected)) << name(dtype);
      if (step == 0) bytes = rows.bytes();
      EXPECT_EQ(rows.bytes(), bytes);
      rows.clear();
    }
  }
}

TEST(FactorRowsTest, NoneMakeZero) {
  const FactorRows rows(2, 2, DType::f32, allocate);
  HostTensor gradient(DType::f32, 2, 2);
  set(gradient, 1, 1, 7);
  FactorRows::multiply(rows.all(), gradient);
  EXPECT_EQ(doubles(gradient), (std::vector<double>{0, 0, 0, 0}));
}

TEST(FactorRowsTest, TakeTheRowsOfALayer) {
  ParameterTable table;
  const Linear linear(table, "l", 5, 3);
  EXPECT_TRUE(table.specs()[0].is_dense);
  EXPECT_FALSE(table.specs()[1].is_dense);
  BoundParameters parameters(table, DType::f32);
  FactorRows rows(5, 3, DType::f32, allocate);
  const HostTensor x = whole_numbers(DType::f32, 4, 5, 1);
  const HostTensor dy = whole_numbers(DType::f32, 4, 3, 2);
  const auto backward = [&] {
    TestPass test(DType::f32);
    Linear::Saved saved;
    linear.forward(test.pass, x, saved);
    linear.backward(test.pass, dy, saved);
  };
  backward();
  const std::vector<double> weight = doubles(parameters.gradient(0));
  const std::vector<double> bias = doubles(parameters.gradient(1));
  parameters.clear_gradients();
  table.set_factors(0, &rows);
  backward();
  EXPECT_EQ(doubles(parameters.gradient(0)), std::vector<double>(15, 0));
  EXPECT_EQ(doubles(parameters.gradient(1)), bias);
  FactorRows::multiply(rows.all(), parameters.gradient(0));
  EXPECT_EQ(doubles(parameters.gradient(0)), weight);
}

}  // namespace
}  // namespace tutti::training::testing
