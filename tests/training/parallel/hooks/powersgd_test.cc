#include "training/parallel/hooks/powersgd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "training/core/random.h"
#include "training/parallel/hooks/orthonormalize.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;
using Values = std::vector<float>;

constexpr int kRank = 2;  // rank of the factors

// There are three buckets with two matrices worth compressing, one that is too small, and two
// vectors.
std::vector<ParameterSpec> example_specs() {
  return {{.name = "embed", .shape = {12, 10}},
          {.name = "bias", .shape = {10}},
          {.name = "conv", .shape = {8, 3, 3, 2}},
          {.name = "tiny", .shape = {2, 2}},
          {.name = "norm", .shape = {40}}};
}

Layout example_layout() {
  return make_layout(example_specs(), {.bucket_elements = 100, .first_bucket_elements = 30});
}

// Returns element `element` of the gradient of `parameter` on a rank in a step.
using Gradient = std::function<float(int rank, int step, int parameter, int element)>;

// Returns an element of a matrix that is the product of two vectors, so that the sum over two ranks
// has matrix rank 2 or less.
float low_rank(int rank, int step, int parameter, int element) {
  const int cols = parameter == 2 ? 18 : 10;
  const int row = element / cols;
  const int col = element % cols;
  const auto value = [&](int side, int index) {
    return scale_symmetric(random_bits(step + 7, side + 2 * rank, index), 1.0f);
  };
  return value(0, row) * value(1, col);
}

float any(int rank, int step, int parameter, int element) {
  return scale_symmetric(random_bits(step, rank * 16 + parameter, element), 1.0f);
}

float exact_sum(const Gradient& gradient, int ranks, int step, int parameter, int element) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += gradient(rank, step, parameter, element);
  return sum;
}

// The results of each step, with all parameters concatenated.
using History = std::vector<Values>;

// Runs the steps of one rank, with all buckets in the order of DataParallel. Ranks poll at
// different times.
template <typename T = float>
History run_steps(Communicator& communicator, int steps, const Gradient& gradient) {
  const Layout layout = example_layout();
  PowerSgd hook(layout, example_specs(), {.rank = kRank});
  std::vector<T> flat(static_cast<size_t>(layout.size));
  const auto bucket = [&](int index) {
    const Bucket& at = layout.buckets[static_cast<size_t>(index)];
    return tensor_at(flat.data() + at.offset, DTypeOf<T>::value, 1, at.size);
  };
  const auto element = [&](const Slot& slot, int64_t i) -> T& {
    const int64_t from = layout.buckets[static_cast<size_t>(slot.bucket)].offset + slot.offset;
    return flat[static_cast<size_t>(from + i)];
  };
  const int buckets = static_cast<int>(layout.buckets.size());
  History history;
  for (int step = 0; step < steps; ++step) {
    for (const Slot& slot : layout.slots) {
      for (int i = 0; i < slot.count; ++i) {
        element(slot, i) = gradient(communicator.rank(), step, slot.parameter, i);
      }
    }
    int finished = 0;
    for (int b = 0; b < buckets; ++b) {
      hook.start(communicator, b, bucket(b));
      if (communicator.rank() == 0) continue;
      while (finished <= b && hook.test(finished)) {
        hook.finish(finished, bucket(finished));
        ++finished;
      }
    }
    for (; finished < buckets; ++finished) hook.finish(finished, bucket(finished));
    history.emplace_back();
    for (const Slot& slot : layout.slots) {
      for (int i = 0; i < slot.count; ++i) history.back().push_back(element(slot, i));
    }
  }
  return history;
}

std::vector<History> histories(int ranks, int steps, const Gradient& gradient) {
  std::vector<History> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    results[static_cast<size_t>(job.rank)] = run_steps(communicator, steps, gradient);
  });
  return results;
}

// Calls expect(parameter, element, position), where `position` is the index of the element in the
// results of a step.
void for_each_element(const std::function<void(int, int, size_t)>& expect) {
  const std::vector<ParameterSpec> specs = example_specs();
  size_t position = 0;
  for (int parameter = 0; parameter < std::ssize(specs); ++parameter) {
    const int64_t count = specs[static_cast<size_t>(parameter)].count();
    for (int element = 0; element < count; ++element) expect(parameter, element, position++);
  }
}

// Expects exact sums up to rounding, which grows with |M| |Q| divided by the smallest singular
// value of P. An inexact sum would differ by about 1.
void expect_sums(const Values& result, int ranks, int step, const Gradient& gradient) {
  for_each_element([&](int parameter, int element, size_t position) {
    EXPECT_NEAR(result[position], exact_sum(gradient, ranks, step, parameter, element), 5e-4)
        << "step " << step << ", parameter " << parameter << ", element " << element;
  });
}

bool compressed(int parameter) { return parameter == 0 || parameter == 2; }

TEST(PowerSgdTest, GradientsOfTheFactorsRankAreExact) {
  for (const History& history : histories(2, 3, low_rank)) {
    for (int step = 0; step < 3; ++step) {
      expect_sums(history[static_cast<size_t>(step)], 2, step, low_rank);
    }
  }
}

TEST(PowerSgdTest, OtherParametersAreSummedUncompressed) {
  const History history = histories(3, 1, [](int rank, int, int, int element) {
    return static_cast<float>((rank + 1) * element);
  })[0];
  for_each_element([&](int parameter, int element, size_t position) {
    if (compressed(parameter)) return;
    EXPECT_EQ(history[0][position], 6.0f * static_cast<float>(element));
  });
}

// The part that a step omits is added later. Gradients of full rank are followed by zero gradients,
// until all of the omitted part has been added.
TEST(PowerSgdTest, NothingIsLostOverSeveralSteps) {
  constexpr int kSteps = 8;
  constexpr int kSilent = 24;
  const Gradient gradient = [](int rank, int step, int parameter, int element) {
    return step < kSteps ? any(rank, step, parameter, element) : 0.0f;
  };
  const History history = histories(2, kSteps + kSilent, gradient)[0];
  float largest_gap = 0;
  for_each_element([&](int parameter, int element, size_t position) {
    float expected = 0;
    float sum = 0;
    for (int step = 0; step < kSteps + kSilent; ++step) {
      if (step == kSteps) largest_gap = std::max(largest_gap, std::abs(sum - expected));
      expected += exact_sum(gradient, 2, step, parameter, element);
      sum += history[static_cast<size_t>(step)][position];
    }
    EXPECT_NEAR(sum, expected, 2e-5) << "parameter " << parameter << ", element " << element;
  });
  EXPECT_GT(largest_gap, 0.5f);  // in a single step, a large part is omitted
}

TEST(PowerSgdTest, AllRanksGetTheSameBits) {
  const std::vector<History> all = histories(3, 5, any);
  EXPECT_EQ(all[1], all[0]);
  EXPECT_EQ(all[2], all[0]);
  EXPECT_EQ(histories(3, 5, any)[0], all[0]);
}

// Gradients of zero must not lead to factors of zero, from which later steps could not recover.
TEST(PowerSgdTest, RecoversFromZeroGradients) {
  const Gradient gradient = [](int rank, int step, int parameter, int element) {
    return step < 2 ? 0.0f : low_rank(rank, step, parameter, element);
  };
  const History history = histories(2, 3, gradient)[0];
  expect_sums(history[1], 2, 1, gradient);
  expect_sums(history[2], 2, 2, gradient);
}

TEST(PowerSgdTest, RecoversFromNotANumber) {
  const Gradient gradient = [](int rank, int step, int parameter, int element) {
    const bool broken = rank == 1 && step == 1 && compressed(parameter) && element == 5;
    return broken ? std::numeric_limits<float>::quiet_NaN()
                  : low_rank(rank, step, parameter, element);
  };
  for (const History& history : histories(2, 3, gradient)) {
    for_each_element([&](int parameter, int, size_t position) {
      EXPECT_EQ(std::isnan(history[1][position]), compressed(parameter));
    });
    expect_sums(history[2], 2, 2, gradient);
  }
}

TEST(PowerSgdTest, CountsBytesOfFactorsAndOtherParameters) {
  const Layout layout = example_layout();
  ASSERT_EQ(layout.buckets.size(), 3u);
  const PowerSgd hook(layout, example_specs(), {.rank = kRank});
  const auto bytes = [&](int bucket, DType dtype) {
    Tensor gradients;
    gradients.dtype = dtype;
    return hook.payload_bytes(bucket, gradients);
  };
  EXPECT_EQ(bytes(0, DType::f32), 40 * 4);                      // norm
  EXPECT_EQ(bytes(1, DType::f32), 2 * (8 + 18) * 4 + 4 * 4);    // conv, tiny
  EXPECT_EQ(bytes(2, DType::f32), 2 * (12 + 10) * 4 + 10 * 4);  // embed, bias
  EXPECT_EQ(bytes(1, DType::bf16), 2 * (8 + 18) * 4 + 4 * 2);
}

TEST(PowerSgdTest, RefusesUnsupportedCases) {
  EXPECT_THROW(PowerSgd(example_layout(), example_specs(), {.rank = 0}), Error);
  run_ranks(1, [](const Job& job) {
    Communicator communicator = Communicator::init(job);
    const Layout layout = example_layout();
    PowerSgd hook(layout, example_specs());
    std::vector<uint16_t> values(static_cast<size_t>(layout.buckets[0].size));
    try {
      hook.start(communicator, 0, tensor_at(values.data(), DType::f16, 1, std::ssize(values)));
      ADD_FAILURE() << "gradients in f16 were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  });
}

TEST(OrthonormalizeTest, RowsBecomeOrthonormal) {
  Values values = {3, 4, 0, 6, 8, 0, 1, 1, 1, 0, 0, 0};
  const std::vector<int> dependent = orthonormalize(tensor_at(values.data(), DType::f32, 4, 3));
  EXPECT_EQ(dependent, (std::vector<int>{1, 3}));
  const float length = std::sqrt(0.04f * 0.04f * (16 + 9) + 1);
  const Values expected = {0.6f,       0.8f, 0, 0, 0, 0, 0.16f / length, -0.12f / length,
                           1 / length, 0,    0, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-7) << i;
}

// The two rows differ by only 1e-4 of their norm, so that a single pass of Gram-Schmidt would not
// make them orthogonal.
TEST(OrthonormalizeTest, NearlyDependentRowsBecomeOrthonormal) {
  constexpr int kCols = 500;
  Values values(2 * kCols);
  for (size_t i = 0; i < kCols; ++i) {
    values[i] = scale_symmetric(random_bits(1, 0, i), 1.0f);
    values[kCols + i] = values[i] + scale_symmetric(random_bits(1, 1, i), 1e-4f);
  }
  EXPECT_TRUE(orthonormalize(tensor_at(values.data(), DType::f32, 2, kCols)).empty());
  double product = 0;
  for (size_t i = 0; i < kCols; ++i) product += double{values[i]} * values[kCols + i];
  EXPECT_NEAR(product, 0, 1e-7);
}

}  // namespace
}  // namespace tutti::training
