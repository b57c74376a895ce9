#include "training/optimizers/loss_scaler.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti::training {
namespace {

void run(LossScaler& scaler, int steps) {
  for (int i = 0; i < steps; ++i) ASSERT_FALSE(scaler.update(false));
}

TEST(LossScalerTest, GrowsAfterTwoThousandGoodSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  run(scaler, 1999);
  EXPECT_EQ(scaler.scale(), 65536);
  run(scaler, 1);
  EXPECT_EQ(scaler.scale(), 131072);
  run(scaler, 2000);
  EXPECT_EQ(scaler.scale(), 262144);
}

TEST(LossScalerTest, AnOverflowHalvesSkipsAndCountsAnew) {
  LossScaler scaler({.initial_scale = 1024, .growth_interval = 3});
  run(scaler, 2);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 512);
  run(scaler, 2);
  EXPECT_EQ(scaler.scale(), 512);
  run(scaler, 1);
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(LossScalerTest, HysteresisForgivesOverflowsUntilTheNextGrowth) {
  LossScaler scaler({.initial_scale = 1024, .growth_interval = 2, .hysteresis = 3});
  EXPECT_TRUE(scaler.update(true));
  run(scaler, 1);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 256);
  run(scaler, 2);
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(LossScalerTest, StaysBetweenTheSmallestScaleAndTheLargestFloat) {
  LossScaler scaler({.initial_scale = 3, .growth_interval = 1});
  EXPECT_TRUE(scaler.update(true));
  EXPECT_TRUE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 1);
  run(scaler, 127);
  EXPECT_EQ(scaler.scale(), 0x1p127);
  run(scaler, 1);
  EXPECT_EQ(scaler.scale(), 0x1p127);
}

TEST(LossScalerTest, ContinuesFromItsState) {
  const LossScalerOptions options{.growth_interval = 4, .hysteresis = 2};
  LossScaler first(options);
  first.update(true);
  run(first, 2);
  LossScaler second(options);
  second.restore(first.state());
  for (const bool overflow : {false, true, false, true, false, false, false, false}) {
    EXPECT_EQ(first.update(overflow), second.update(overflow));
    EXPECT_EQ(first.state(), second.state());
  }
}

TEST(LossScalerTest, RefusesInvalidOptions) {
  EXPECT_THROW(LossScaler({.initial_scale = 0}), Error);
  EXPECT_THROW(LossScaler({.growth = 1}), Error);
  EXPECT_THROW(LossScaler({.backoff = 1}), Error);
  EXPECT_THROW(LossScaler({.growth_interval = 0}), Error);
  EXPECT_THROW(LossScaler({.hysteresis = 0}), Error);
  LossScaler scaler;
  EXPECT_THROW(scaler.restore({.scale = -1}), Error);
  EXPECT_THROW(scaler.restore({.scale = 1, .good_steps = -1}), Error);
  EXPECT_EQ(scaler.scale(), 65536);
}

}  // namespace
}  // namespace tutti::training
