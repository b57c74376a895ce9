// Gradients against central differences, on odd shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "training/kernels.h"
#include "training/modules/embedding.h"
#include "training/modules/gelu.h"
#include "training/modules/linear.h"
#include "training/modules/softmax_cross_entropy.h"
#include "training/parameters.h"
#include "training/random.h"

namespace tutti::training {
namespace {

Matrix random_matrix(MatrixBuffer& buffer, int64_t rows, int64_t cols, uint64_t stream) {
  const Matrix matrix = buffer.resize(rows, cols);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix.data[i] = scale_symmetric(random_bits(99, stream, i), 1.5f);
  }
  return matrix;
}

// A scalar to differentiate: sum of weight[i] * value[i].
double dot(ConstMatrix values, ConstMatrix weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(values.data[i]) * weights.data[i];
  }
  return sum;
}

// `gradient` is the derivative of `loss` with respect to `values`.
void expect_gradient(std::span<float> values, std::span<const float> gradient,
                     const std::function<double()>& loss) {
  constexpr float kStep = 1.0f / 64;  // float32 forwards: a larger step loses less to rounding
  ASSERT_EQ(values.size(), gradient.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    const auto at = [&](float offset) {
      values[i] = value + offset;
      return loss();
    };
    // Fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h
    const double derivative =
        (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12.0 * kStep);
    values[i] = value;
    EXPECT_NEAR(gradient[i], derivative, 2e-4 * (1 + std::abs(derivative))) << "element " << i;
  }
}

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(GemmTest, EveryTransposeAndMode) {
  constexpr int64_t m = 5, n = 3, k = 7;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      MatrixBuffer a_buffer, b_buffer, c_buffer, bias_buffer;
      const Matrix a = random_matrix(a_buffer, ta ? k : m, ta ? m : k, 1);
      const Matrix b = random_matrix(b_buffer, tb ? n : k, tb ? k : n, 2);
      const Matrix c = random_matrix(c_buffer, m, n, 3);
      const Matrix bias = random_matrix(bias_buffer, 1, n, 4);
      const std::vector<float> before = copy(c.values());
      const auto product = [&](int64_t row, int64_t col) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          sum += static_cast<double>(ta ? a.row(i)[row] : a.row(row)[i]) *
                 (tb ? b.row(col)[i] : b.row(i)[col]);
        }
        return sum;
      };
      const Transpose transpose_a{ta}, transpose_b{tb};
      gemm(a, transpose_a, b, transpose_b, c, GemmMode::accumulate);
      for (int64_t i = 0; i < m * n; ++i) {
        EXPECT_NEAR(c.data[i], before[i] + product(i / n, i % n), 1e-5);
      }
      gemm(a, transpose_a, b, transpose_b, c, GemmMode::overwrite, bias.values());
      for (int64_t i = 0; i < m * n; ++i) {
        EXPECT_NEAR(c.data[i], bias.data[i % n] + product(i / n, i % n), 1e-5);
      }
    }
  }
}

TEST(GemmTest, RefusesShapesThatDoNotFit) {
  MatrixBuffer a, b, c;
  EXPECT_THROW(gemm(a.resize(2, 3), Transpose::no, b.resize(4, 5), Transpose::no, c.resize(2, 5)),
               Error);
}

TEST(GemmTest, ZeroRowsAreFine) {
  MatrixBuffer a, b, c;
  gemm(a.resize(0, 3), Transpose::no, random_matrix(b, 3, 5, 1), Transpose::no, c.resize(0, 5));
  EXPECT_EQ(c.view().rows, 0);
}

TEST(LinearTest, Gradients) {
  Linear linear(7, 3);
  const ParameterLayout layout = make_layout(linear.parameter_specs());
  Parameters parameters(layout);
  linear.bind(std::vector{parameters.at(0), parameters.at(1)});
  linear.initialize(1, 0);
  MatrixBuffer input_buffer, weights_buffer;
  const Matrix input = random_matrix(input_buffer, 5, 7, 1);
  const Matrix weights = random_matrix(weights_buffer, 5, 3, 2);
  const auto loss = [&] { return dot(linear.forward(input), weights); };

  loss();
  const std::vector<float> input_gradient = copy(linear.backward(weights).values());
  const std::vector<float> once = copy(parameters.gradients());
  expect_gradient(input.values(), input_gradient, loss);
  for (size_t slot : {0, 1}) {
    const Parameter parameter = parameters.at(slot);
    expect_gradient(parameter.value, copy(parameter.gradient), loss);
  }
  loss();
  linear.backward_weight(weights);
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(parameters.gradients()[i], 2 * once[i], 1e-5);  // gradients add up
  }
}

TEST(GeluTest, ValuesAndGradients) {
  Gelu module;
  MatrixBuffer input_buffer, weights_buffer;
  const Matrix input = random_matrix(input_buffer, 3, 11, 1);
  const Matrix weights = random_matrix(weights_buffer, 3, 11, 2);
  const ConstMatrix output = module.forward(input);
  for (size_t i = 0; i < input.size(); ++i) {
    const double x = input.data[i];
    const double root = std::sqrt(2 / std::numbers::pi);
    EXPECT_NEAR(output.data[i], 0.5 * x * (1 + std::tanh(root * (x + 0.044715 * x * x * x))), 1e-5);
  }
  const std::vector<float> gradient = copy(module.backward(weights).values());
  expect_gradient(input.values(), gradient, [&] { return dot(module.forward(input), weights); });
}

TEST(EmbeddingTest, ConcatenatesVectorsAndAddsTheirGradients) {
  Embedding embedding(3, 5);
  Parameters parameters(make_layout(embedding.parameter_specs()));
  embedding.bind(std::vector{parameters.at(0)});
  embedding.initialize(1, 0);
  const std::vector<uint8_t> contexts = {0, 255, 7, 7, 7, 0};  // two samples, repeated bytes
  MatrixBuffer weights_buffer;
  const Matrix weights = random_matrix(weights_buffer, 2, 15, 2);
  const ConstMatrix output = embedding.forward(contexts);
  ASSERT_EQ(output.rows, 2);
  ASSERT_EQ(output.cols, 15);
  EXPECT_EQ(output.row(0)[5 + 4], parameters.at(0).value[255 * 5 + 4]);
  embedding.backward_weight(weights);
  expect_gradient(parameters.at(0).value, copy(parameters.at(0).gradient),
                  [&] { return dot(embedding.forward(contexts), weights); });
}

TEST(SoftmaxCrossEntropyTest, LossAndGradients) {
  SoftmaxCrossEntropy module;
  MatrixBuffer logits_buffer;
  const Matrix logits = random_matrix(logits_buffer, 3, 13, 1);
  const std::vector<uint8_t> targets = {12, 0, 5};
  double expected = 0;
  for (int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (const float logit : logits.row(row)) sum += std::exp(static_cast<double>(logit));
    expected += std::log(sum) - logits.row(row)[targets[row]];
  }
  EXPECT_NEAR(module.forward(logits, targets), expected, 1e-5);
  const std::vector<float> gradient = copy(module.backward(0.25f).values());
  expect_gradient(logits.values(), gradient,
                  [&] { return 0.25 * module.forward(logits, targets); });
}

TEST(SoftmaxCrossEntropyTest, HopelessTargetsHaveAFiniteLoss) {
  SoftmaxCrossEntropy module;
  std::vector<float> logits = {1000.0f, 0.0f};
  const std::vector<uint8_t> targets = {1};
  EXPECT_NEAR(module.forward(ConstMatrix{logits.data(), 1, 2}, targets), 1000, 1e-3);
}

}  // namespace
}  // namespace tutti::training
