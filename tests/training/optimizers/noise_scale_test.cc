#include "training/optimizers/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"

namespace tutti::training {
namespace {

// The expectation of |G_B|^2 is |G|^2 + S / B, where |G|^2 is 2 and S is 48.
TEST(NoiseScaleTest, IsExactForExpectedNorms) {
  NoiseScale scale(0.5);
  EXPECT_TRUE(std::isnan(scale.value()));
  for (int step = 0; step < 3; ++step) scale.add(2 + 48.0 / 4, 4, 2 + 48.0 / 16, 16);
  EXPECT_DOUBLE_EQ(scale.gradient_square(), 2);
  EXPECT_DOUBLE_EQ(scale.noise(), 48);
  EXPECT_DOUBLE_EQ(scale.value(), 24);
}

TEST(NoiseScaleTest, SmoothsBothEstimatesBeforeItDivides) {
  NoiseScale scale(0.75);
  scale.add(1 + 8.0 / 2, 2, 1 + 8.0 / 4, 4);
  scale.add(3 + 16.0 / 2, 2, 3 + 16.0 / 4, 4);
  // The smoothing weights of the two steps are 0.75 * 0.25 and 0.25, in the ratio 3 to 4.
  EXPECT_DOUBLE_EQ(scale.gradient_square(), (3 * 1 + 4 * 3) / 7.0);
  EXPECT_DOUBLE_EQ(scale.noise(), (3 * 8 + 4 * 16) / 7.0);
}

TEST(NoiseScaleTest, IsUnknownWhileTheNoiseHidesTheGradient) {
  NoiseScale scale;
  scale.add(4, 1, 1, 2);
  EXPECT_TRUE(std::isnan(scale.value()));
}

// A sample's gradient is (3, 0, 0, ...) plus normal noise of variance 4 in each of 20 dimensions.
TEST(NoiseScaleTest, FindsTheNoiseOfSamples) {
  constexpr int kDimensions = 20, kSmall = 8, kBatches = 4;
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 2);
  NoiseScale scale(0.999);
  for (int step = 0; step < 3000; ++step) {
    double small_square = 0, big_square = 0;
    for (int dimension = 0; dimension < kDimensions; ++dimension) {
      double big = 0;
      for (int batch = 0; batch < kBatches; ++batch) {
        double small = 0;
        for (int sample = 0; sample < kSmall; ++sample) small += noise(random) / kSmall;
        if (dimension == 0) small += 3;
        small_square += small * small / kBatches;
        big += small / kBatches;
      }
      big_square += big * big;
    }
    scale.add(small_square, kSmall, big_square, kSmall * kBatches);
  }
  EXPECT_NEAR(scale.gradient_square(), 9, 0.3);
  EXPECT_NEAR(scale.noise(), 80, 3);
  EXPECT_NEAR(scale.value(), 80.0 / 9, 0.5);
}

TEST(NoiseScaleTest, NeedsTwoSizesOfBatches) {
  NoiseScale scale;
  EXPECT_THROW(scale.add(1, 4, 1, 4), Error);
  EXPECT_THROW(scale.add(1, 0, 1, 4), Error);
  EXPECT_THROW(NoiseScale(1), Error);
}

}  // namespace
}  // namespace tutti::training
