#include "training/optimizers/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "training/optimizers/sgd.h"

namespace tutti::training {
namespace {

float float_of(uint16_t bf16) { return __builtin_bit_cast(float, uint32_t{bf16} << 16); }

// Averages over all 2^16 random numbers. Every sum here is exact in double.
TEST(RoundToBf16Test, TheMeanIsTheNumberItself) {
  for (const float value : {1.00123f, -1.00123f, 3.0e38f, 1.0e-30f, 1.0e-39f, -7.5f, 0.0f, 255.99f,
                            std::numeric_limits<float>::denorm_min()}) {
    double sum = 0;
    for (uint32_t random = 0; random < 65536; ++random) {
      const float rounded = float_of(round_to_bf16(value, static_cast<uint16_t>(random)));
      // The result is one of the two neighbours in bf16.
      ASSERT_LE(std::abs(rounded - value), std::max(std::abs(value) / 128, 0x1p-133f));
      sum += rounded;
    }
    EXPECT_EQ(sum / 65536, value);
  }
}

TEST(RoundToBf16Test, LeavesSpecialValues) {
  for (const uint16_t random : {0, 1, 65535}) {
    EXPECT_EQ(round_to_bf16(HUGE_VALF, random), 0x7f80);
    EXPECT_EQ(round_to_bf16(-HUGE_VALF, random), 0xff80);
    EXPECT_EQ(round_to_bf16(__builtin_bit_cast(float, 0x7fffffffu), random), 0x7fc0);
    EXPECT_EQ(round_to_bf16(__builtin_bit_cast(float, 0xff800001u), random), 0x7fc0);
    EXPECT_EQ(round_to_bf16(-0.0f, random), 0x8000);
  }
}

// A thousand steps reduce values from 1 by 2^-14 each. Below 1, the unit in the last place of bf16
// is 2^-8.
class WithoutMastersTest : public testing::Test {
 protected:
  double mean_after_steps(bool stochastic_rounding) {
    constexpr int64_t kCount = 4096;
    const ParameterSpec spec{.name = "weight", .shape = {kCount}};
    std::vector<uint16_t> values(kCount, 0x3f80);
    const std::vector<float> gradients(kCount, 1.0f);
    const OwnedPiece piece{.piece = {.count = kCount},
                           .spec = &spec,
                           .gradient = tensor_at(gradients.data(), DType::f32, 1, kCount),
                           .value = tensor_at(values.data(), DType::bf16, 1, kCount)};
    Sgd sgd({.momentum = 0});
    NormReducer alone;
    for (int64_t step = 1; step <= 1000; ++step) {
      sgd.step({&piece, 1}, {},
               {.step = step, .learning_rate = 0x1p-14, .stochastic_rounding = stochastic_rounding},
               alone);
    }
    double sum = 0;
    for (const uint16_t value : values) sum += float_of(value);
    return sum / kCount;
  }
};

TEST_F(WithoutMastersTest, RoundingToNearestLosesSmallUpdates) {
  EXPECT_EQ(mean_after_steps(false), 1);
}

// The standard deviation of an element is about sqrt(1000 / 64) * 2^-8 = 0.0154, that of the mean
// of all elements 0.00024.
TEST_F(WithoutMastersTest, StochasticRoundingKeepsSmallUpdates) {
  EXPECT_NEAR(mean_after_steps(true), 1 - 1000 * 0x1p-14, 0.001);
}

}  // namespace
}  // namespace tutti::training
