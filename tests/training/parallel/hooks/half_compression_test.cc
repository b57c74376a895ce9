// Tests sums over ranks in 16 bits: the gradients are rounded, summed, and the sum is rounded.
#include "training/parallel/hooks/half_compression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/half.h"
#include "tests/support/ranks.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;
using Values = std::vector<float>;

// Passes the gradients values(rank) through the hook on each rank. Returns each rank's result.
std::vector<Values> sums(int ranks, DType wire, const std::function<Values(int)>& values) {
  std::vector<Values> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    HalfCompression hook(wire);
    Values own = values(job.rank);
    const Tensor gradients = tensor_at(own.data(), DType::f32, 1, std::ssize(own));
    // Runs two steps, so that the bucket is used again.
    hook.start(communicator, 0, gradients);
    hook.finish(0, gradients);
    std::ranges::copy(values(job.rank), own.begin());
    hook.start(communicator, 0, gradients);
    while (!hook.test(0)) std::this_thread::yield();
    hook.finish(0, gradients);
    results[static_cast<size_t>(job.rank)] = own;
  });
  return results;
}

class HalfCompressionTest : public ::testing::TestWithParam<DType> {};

TEST_P(HalfCompressionTest, RoundsEachGradientAndTheSum) {
  const DType wire = GetParam();
  const auto values = [](int rank) {
    Values own;
    for (int i = 0; i < 1000; ++i) {
      own.push_back(static_cast<float>((i * 37 + rank * 11) % 501 - 250) / 3.0f);
    }
    return own;
  };
  const Values a = values(0);
  const Values b = values(1);
  const auto round = [&](float value) { return to_float(wire, from_float(wire, value)); };
  Values expected;
  bool rounded = false;
  for (size_t i = 0; i < a.size(); ++i) {
    expected.push_back(round(round(a[i]) + round(b[i])));
    rounded |= expected.back() != a[i] + b[i];
  }
  EXPECT_TRUE(rounded);
  for (const Values& result : sums(2, wire, values)) EXPECT_EQ(result, expected);
}

TEST_P(HalfCompressionTest, SmallIntegersAreExact) {
  const auto values = [](int rank) { return Values{1, -2.0f * static_cast<float>(rank), 16, 0}; };
  for (const Values& result : sums(3, GetParam(), values)) {
    EXPECT_EQ(result, (Values{3, -6, 48, 0}));
  }
}

TEST_P(HalfCompressionTest, TakesHalfTheBytes) {
  Values own(96);
  const Tensor gradients = tensor_at(own.data(), DType::f32, 1, 96);
  EXPECT_EQ(HalfCompression(GetParam()).payload_bytes(0, gradients), 192);
}

INSTANTIATE_TEST_SUITE_P(Wires, HalfCompressionTest, ::testing::Values(DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(HalfCompressionTest, SumsBeyondF16AreInfinite) {
  const auto values = [](int) { return Values{40000, 1e-9f}; };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Values& result : sums(2, DType::f16, values)) {
    EXPECT_EQ(result, (Values{kInfinity, 0}));
  }
  for (const Values& result : sums(2, DType::bf16, values)) EXPECT_EQ(result[0], 79872);
}

TEST(HalfCompressionTest, RefusesOtherTypes) {
  EXPECT_THROW(HalfCompression(DType::f32), Error);
  EXPECT_THROW(HalfCompression(DType::f8e4m3), Error);
}

}  // namespace
}  // namespace tutti::training
