#include "training/modules/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/training/support/bound_parameters.h"

namespace tutti::training::testing {
namespace {

constexpr int64_t kSamples = 6, kPerSample = 35;

// Returns a mask: the result of dropout on ones.
HostTensor mask(double p, uint64_t stream, uint64_t seed, uint64_t first_sample, int64_t samples,
                int64_t per_sample = kPerSample) {
  TestPass test;
  test.pass.seed = seed;
  test.batch.samples = samples;
  test.batch.first_sample = first_sample;
  HostTensor values(DType::f64, samples * 5, per_sample / 5);
  assign(values, std::vector<double>(static_cast<size_t>(values.view().size()), 1));
  Dropout(p, stream).forward(test.pass, values);
  return values;
}

TEST(DropoutTest, DependsOnTheSampleNotOnTheMicroBatch) {
  const std::vector<double> whole = doubles(mask(0.4, 3, 9, 100, kSamples));
  for (const int64_t size : {1, 2, 3}) {
    std::vector<double> cut;
    for (int64_t first = 0; first < kSamples; first += size) {
      const std::vector<double> part =
          doubles(mask(0.4, 3, 9, 100 + static_cast<uint64_t>(first), size));
      cut.insert(cut.end(), part.begin(), part.end());
    }
    EXPECT_EQ(cut, whole) << size;
  }
}

// Each sample has 5 positions, and the rank has only some of them.
TEST(DropoutTest, DependsOnThePositionNotOnWhoHasIt) {
  constexpr int64_t kPositions = 5, kCols = kPerSample / kPositions;
  const std::vector<double> whole = doubles(mask(0.4, 3, 9, 100, kSamples));
  for (int64_t first = 0; first < kPositions; ++first) {
    const int64_t rows = std::min<int64_t>(2, kPositions - first);
    TestPass test;
    test.pass.seed = 9;
    test.batch.samples = kSamples;
    test.batch.first_sample = 100;
    std::vector<Share> ranges;
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      ranges.push_back({sample * kPositions + first, rows});
    }
    test.batch.ranges = ranges;
    test.batch.positions = kPositions;
    HostTensor values(DType::f64, kSamples * rows, kCols);
    assign(values, std::vector<double>(static_cast<size_t>(values.view().size()), 1));
    Dropout(0.4, 3).forward(test.pass, values);
    const std::vector<double> part = doubles(values);
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      const auto at = [](const std::vector<double>& all, int64_t index, int64_t count) {
        return std::vector<double>(all.begin() + index, all.begin() + index + count);
      };
      EXPECT_EQ(at(part, sample * rows * kCols, rows * kCols),
                at(whole, sample * kPerSample + first * kCols, rows * kCols));
    }
  }
}

TEST(DropoutTest, SamplesStreamsAndSeedsDiffer) {
  const std::vector<double> base = doubles(mask(0.4, 3, 9, 100, 1));
  EXPECT_NE(doubles(mask(0.4, 3, 9, 101, 1)), base);
  EXPECT_NE(doubles(mask(0.4, 4, 9, 100, 1)), base);
  EXPECT_NE(doubles(mask(0.4, 3, 10, 100, 1)), base);
}

// Kept elements are 1 / (1 - p). Their count is within 6 standard deviations of the expected count.
TEST(DropoutTest, KeepsTheExpectedShare) {
  for (const double p : {0.1, 0.5, 0.9}) {
    constexpr int64_t kCount = 100000;
    const std::vector<double> values = doubles(mask(p, 3, 9, 7, 1, kCount / 5 * 5));
    double kept = 0;
    for (const double value : values) {
      EXPECT_TRUE(value == 0 || value == 1 / (1 - p));
      kept += value != 0 ? 1 : 0;
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(kept, count * (1 - p), 6 * std::sqrt(count * p * (1 - p)));
  }
}

TEST(DropoutTest, BackwardDropsTheSameElements) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    TestPass test(type);
    test.batch.samples = kSamples;
    const Dropout dropout(0.3, 1);
    const HostTensor x = random_tensor(type, kSamples, kPerSample, 4);
    const HostTensor forward = rounded_to(type, x), backward = rounded_to(type, x);
    dropout.forward(test.pass, forward);
    dropout.backward(test.pass, backward);
    EXPECT_TRUE(same_bits(forward, backward));
    EXPECT_FALSE(same_bits(forward, x));
  }
}

TEST(DropoutTest, IsOffWithoutTraining) {
  TestPass test;
  EXPECT_TRUE(Dropout(0.3, 1).active(test.pass));
  EXPECT_FALSE(Dropout(0, 1).active(test.pass));
  test.pass.training = false;
  const HostTensor x = random_tensor(DType::f64, 3, 7, 4), y = rounded_to(DType::f64, x);
  Dropout(0.3, 1).forward(test.pass, y);
  EXPECT_TRUE(same_bits(x, y));
}

TEST(DropoutTest, NoSamples) {
  TestPass test;
  test.batch.samples = 0;
  const HostTensor x(DType::f64, 0, 7);
  EXPECT_NO_THROW(Dropout(0.3, 1).forward(test.pass, x));
}

}  // namespace
}  // namespace tutti::training::testing
