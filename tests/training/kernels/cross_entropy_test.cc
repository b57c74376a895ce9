#include "training/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/training/support/gradient_check.h"
#include "training/kernels/elementwise.h"

namespace tutti::training::testing {
namespace {

struct Result {
  std::vector<double> losses;
  int64_t correct = 0;
  HostTensor statistics;
};

Result run(ConstTensor logits, std::span<const int32_t> targets) {
  Result result{.statistics = HostTensor(value_type(logits.dtype), logits.rows, 2)};
  const HostTensor losses(DType::f64, 1, logits.rows);
  const HostTensor sums(value_type(logits.dtype), logits.rows, 3);
  cross_entropy_sums(logits, targets, {}, sums);
  const Loss found = cross_entropy(sums, targets, losses, result.statistics).get();
  result.losses = doubles(losses);
  result.correct = found.correct;
  const double sum = std::accumulate(result.losses.begin(), result.losses.end(), 0.0);
  EXPECT_TRUE(found.sum == sum || std::isnan(sum));
  return result;
}

TEST(CrossEntropyTest, KnownLosses) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const double tolerance = type == DType::f64 ? 1e-15 : 1e-6;
    HostTensor logits(type, 3, 4);
    assign(logits, std::vector<double>{0, 0, 0, 0,          // equal logits: the loss is log 4
                                       100, 0, 0, 0,        // certain and correct
                                       100, 0, 0, 100.0});  // loss 100 + log 2
    const Result result = run(logits, std::array{2, 0, 1});
    EXPECT_NEAR(result.losses[0], std::log(4), tolerance);
    EXPECT_NEAR(result.losses[1], 0, tolerance);
    EXPECT_NEAR(result.losses[2], 100 + std::log(2), 100 * tolerance);
    EXPECT_EQ(result.correct, 2);
  }
}

TEST(CrossEntropyTest, HugeLogitsDoNotOverflow) {
  HostTensor logits(DType::f32, 1, 3);
  assign(logits, std::vector<double>{3e38, -3e38, 0});
  const Result result = run(logits, std::array{0});
  EXPECT_EQ(result.losses[0], 0);
  HostTensor gradient(DType::f32, 1, 3);
  cross_entropy_backward(logits, std::array{0}, {}, result.statistics, 1, gradient);
  EXPECT_EQ(doubles(gradient), (std::vector<double>{0, 0, 0}));
}

TEST(CrossEntropyTest, ANaNIsNotHidden) {
  HostTensor logits(DType::f32, 1, 40);
  set(logits, 0, 21, NAN);
  EXPECT_TRUE(std::isnan(run(logits, std::array{0}).losses[0]));
}

TEST(CrossEntropyTest, Gradient) {
  for (const int64_t classes : {1, 2, 7, 33}) {
    const HostTensor logits =
        random_tensor(DType::f64, 5, classes, static_cast<uint64_t>(classes), 3);
    std::vector<int32_t> targets;
    for (int32_t i = 0; i < 5; ++i) targets.push_back(i % static_cast<int32_t>(classes));
    const auto loss = [&] {
      double sum = 0;
      for (const double part : run(logits, targets).losses) sum += part;
      return 0.25 * sum;
    };
    const Result result = run(logits, targets);
    HostTensor gradient(DType::f64, 5, classes);
    cross_entropy_backward(logits, targets, {}, result.statistics, 0.25, gradient);
    expect_gradient("logits", logits, gradient, loss);
    cross_entropy_backward(logits, targets, {}, result.statistics, 0.25, logits);  // in place
    EXPECT_TRUE(same_bits(logits, gradient));
  }
}

TEST(CrossEntropyTest, SmallTypesAreCloseToTheWideOne) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const HostTensor logits = random_tensor(type, 6, 129, 5, 6);
    const HostTensor wide = rounded_to(DType::f64, logits);
    const std::array targets = {0, 128, 64, 1, 2, 3};
    const Result narrow_result = run(logits, targets), wide_result = run(wide, targets);
    EXPECT_LT(relative_distance(narrow_result.losses, wide_result.losses), 1e-6) << name(type);
    EXPECT_EQ(narrow_result.correct, wide_result.correct);
    HostTensor gradient(type, 6, 129), wide_gradient(DType::f64, 6, 129);
    cross_entropy_backward(logits, targets, {}, narrow_result.statistics, 8, gradient);
    cross_entropy_backward(wide, targets, {}, wide_result.statistics, 8, wide_gradient);
    EXPECT_LT(relative_distance(gradient, wide_gradient), type == DType::f32    ? 1e-6
                                                          : type == DType::bf16 ? 0x1p-8
                                                                                : 0x1p-11)
        << name(type);
  }
}

TEST(CrossEntropyTest, RefusesTargetsThatAreNoClass) {
  HostTensor logits(DType::f32, 2, 3);
  try {
    run(logits, std::array{0, 3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

// An ignored row gets zeros, whatever it contains, and does not change the results of other rows.
TEST(CrossEntropyTest, TargetsBelowZeroAreIgnored) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const HostTensor two = random_tensor(type, 2, 5, 1, 3);
    HostTensor four(type, 4, 5);
    for (int64_t i = 0; i < 5; ++i) {
      set(four, 0, i, NAN);
      set(four, 1, i, get(two, 0, i));
      set(four, 2, i, INFINITY);
      set(four, 3, i, get(two, 1, i));
    }
    const std::array kept = {4, 0};
    const std::array all = {-100, 4, -1, 0};
    const Result expected = run(two, kept), found = run(four, all);
    EXPECT_EQ(found.losses, (std::vector<double>{0, expected.losses[0], 0, expected.losses[1]}));
    EXPECT_EQ(found.correct, expected.correct);
    HostTensor gradient(type, 2, 5);
    cross_entropy_backward(two, kept, {}, expected.statistics, 0.5, gradient);
    cross_entropy_backward(four, all, {}, found.statistics, 0.5, four);
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(get(four, 0, i), 0);
      EXPECT_EQ(get(four, 1, i), get(gradient, 0, i));
      EXPECT_EQ(get(four, 2, i), 0);
      EXPECT_EQ(get(four, 3, i), get(gradient, 1, i));
    }
  }
}

}  // namespace
}  // namespace tutti::training::testing
