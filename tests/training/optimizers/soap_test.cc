#include "training/optimizers/soap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "tests/training/optimizers/one_owner.h"
#include "training/kernels/decompositions.h"

namespace tutti::training {
namespace {

// Results of 25 steps of SOAP (pytorch-optimizer 4.1.0 with PyTorch 2.15, f32, lr = 0.01,
// weight_decay = 0.1, max_precondition_dim = 5) on the synthetic gradients of one_owner.h; the
// bases are updated twice. Of the 4 x 7 matrix, only the side of 4 is preconditioned, because
// libraries differ on the side of 7: its 7 x 7 products of gradients with 4 rows do not determine
// eigenvectors for 3 dimensions.
const std::vector<std::vector<float>> kExpected = {
    {-0.263482273F, -0.159576207F,  -0.0165729579F, 0.203154579F,  -0.478692532F,
     -0.102439784F, 0.221524894F,   0.038546171F,   -0.472711712F, 0.180349231F,
     -0.266088188F, -0.0532501228F, 0.0622004606F,  0.304721206F,  -0.262755066F,
     0.460166365F,  0.345493823F,   -0.218330219F,  0.134045571F,  0.117360108F,
     -0.315878451F, -0.34554106F,   -0.527958512F,  -0.241586849F, -0.37726602F},
    {-0.242585182F, -0.0956338122F, -0.330862433F,  0.272294939F,   0.180491656F,  -0.419807673F,
     -0.277470917F, 0.00243744836F, -0.0227770004F, 0.237533018F,   0.134212866F,  -0.385804057F,
     0.036770463F,  0.344818681F,   -0.0746050552F, -0.0196979586F, -0.463879406F, -0.163793042F,
     0.473405421F,  -0.146377549F,  0.341455013F,   0.132871568F,   0.429205716F,  -0.0857065916F,
     -0.208373934F, -0.298235655F,  -0.242104352F,  -0.365933776F},
    {-0.241710395F, -0.0131032085F, 0.421161115F, 0.274067551F},
    {-0.263066381F, 0.0765683278F, 0.023223713F, 0.297522128F, -0.472334892F, 0.118660338F,
     -0.460934758F, -0.186770484F, 0.0265052598F, 0.24710536F, 0.112913907F, 0.00168578501F}};

TEST(Soap, TakesTheStepsOfPytorchOptimizer) {
  Soap soap({.weight_decay = 0.1, .max_dimension = 5});
  OneOwner trained(soap,
                   {{.name = "square", .shape = {5, 5}},
                    {.name = "wide", .shape = {4, 7}},
                    {.name = "vector", .shape = {4}},
                    {.name = "filters", .shape = {3, 2, 2}}},
                   3);
  for (int64_t step = 1; step <= 25; ++step) trained.step(step, 0.01, 1);
  for (size_t k = 0; k < kExpected.size(); ++k) {
    for (size_t i = 0; i < kExpected[k].size(); ++i) {
      EXPECT_NEAR(trained.values[k][i], kExpected[k][i], 1e-6) << k << ' ' << i;
    }
  }
}

TEST(Soap, TheFirstStepOnlyCollects) {
  Soap soap({.weight_decay = 0.1});
  OneOwner trained(soap, {{.name = "weight", .shape = {3, 4}}}, 1);
  const std::vector<float> before = trained.values[0];
  trained.step(1, 0.01, 1);
  EXPECT_EQ(trained.values[0], before);
  const std::vector<std::span<float>> states = trained.whole().of(0);
  ASSERT_EQ(states.size(), 6U);
  for (const float value : states[0]) EXPECT_EQ(value, 0);
  EXPECT_NE(states[2][0], 0);
}

std::vector<double> gram(std::span<const float> matrix, size_t n) {
  std::vector<double> products(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t k = 0; k < n; ++k) {
        products[i * n + j] += static_cast<double>(matrix[k * n + i]) * matrix[k * n + j];
      }
    }
  }
  return products;
}

void expect_orthogonal(std::span<const float> matrix, size_t n) {
  const std::vector<double> products = gram(matrix, n);
  for (size_t i = 0; i < n * n; ++i) EXPECT_NEAR(products[i], i % (n + 1) == 0, 1e-5);
}

TEST(Decompositions, EigenvectorsDiagonalise) {
  constexpr size_t kSize = 40;
  const std::vector<double> products = gram(made_up(kSize * kSize, 1), kSize);
  const std::vector<float> matrix(products.begin(), products.end());
  std::vector<float> vectors(kSize * kSize);
  symmetric_eigenvectors(matrix, kSize, vectors);
  expect_orthogonal(vectors, kSize);
  double last = INFINITY;
  for (size_t v = 0; v < kSize; ++v) {
    std::vector<double> image(kSize);
    double value = 0;
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t j = 0; j < kSize; ++j) image[i] += matrix[i * kSize + j] * vectors[j * kSize + v];
      value += image[i] * vectors[i * kSize + v];
    }
    EXPECT_LE(value, last) << "descending";
    for (size_t i = 0; i < kSize; ++i) EXPECT_NEAR(image[i], value * vectors[i * kSize + v], 1e-5);
    last = value;
  }
}

// The first column of the factor has the direction of the matrix's first column.
TEST(Decompositions, TheOrthogonalFactorSpansTheColumns) {
  constexpr size_t kSize = 40;
  const std::vector<float> matrix = made_up(kSize * kSize, 2);
  std::vector<float> factor = matrix;
  orthogonal_factor(factor, kSize);
  expect_orthogonal(factor, kSize);
  double squares = 0;
  for (size_t i = 0; i < kSize; ++i) squares += matrix[i * kSize] * matrix[i * kSize];
  for (size_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(std::abs(factor[i * kSize]), std::abs(matrix[i * kSize]) / std::sqrt(squares),
                1e-6);
  }
}

TEST(Soap, BadOptionsAreRefused) {
  EXPECT_THROW(Soap({.beta1 = 1}), Error);
  EXPECT_THROW(Soap({.weight_decay = -1}), Error);
  EXPECT_THROW(Soap({.frequency = 0}), Error);
  EXPECT_THROW(Soap({.max_dimension = -1}), Error);
}

}  // namespace
}  // namespace tutti::training
