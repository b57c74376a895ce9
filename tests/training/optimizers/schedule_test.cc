#include "training/optimizers/schedule.h"

#include <gtest/gtest.h>

namespace tutti::training {
namespace {

using Decay = LearningRateSchedule::Decay;

TEST(LearningRateScheduleTest, WarmsUpThenFallsAsACosine) {
  const LearningRateSchedule schedule{
      .peak = 1, .warmup_steps = 4, .total_steps = 14, .final_fraction = 0.1};
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.75);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1);
  EXPECT_NEAR(schedule.at(9), 0.55, 1e-15);  // half way
  EXPECT_NEAR(schedule.at(14), 0.1, 1e-15);
  EXPECT_NEAR(schedule.at(100), 0.1, 1e-15);
}

TEST(LearningRateScheduleTest, FallsInAStraightLine) {
  const LearningRateSchedule schedule{
      .decay = Decay::linear, .peak = 2, .total_steps = 9, .final_fraction = 0.5};
  EXPECT_DOUBLE_EQ(schedule.at(1), 2);  // no warm-up: the first step has the peak
  EXPECT_DOUBLE_EQ(schedule.at(3), 1.75);
  EXPECT_DOUBLE_EQ(schedule.at(9), 1);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1);
}

TEST(LearningRateScheduleTest, StaysConstant) {
  const LearningRateSchedule schedule{
      .decay = Decay::constant, .peak = 3, .warmup_steps = 2, .total_steps = 4};
  EXPECT_DOUBLE_EQ(schedule.at(1), 1.5);
  EXPECT_DOUBLE_EQ(schedule.at(2), 3);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 3);
}

TEST(LearningRateScheduleTest, WorksWhenWarmUpIsAllThereIs) {
  const LearningRateSchedule schedule{.peak = 1, .warmup_steps = 10, .total_steps = 5};
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1);
  EXPECT_DOUBLE_EQ((LearningRateSchedule{.peak = 2}.at(1)), 2);
}

TEST(ScaledRateTest, FollowsTheRule) {
  EXPECT_EQ(scaled_rate(0.1, 4096, 256, BatchScaling::none), 0.1);
  EXPECT_EQ(scaled_rate(0.1, 4096, 256, BatchScaling::linear), 1.6);
  EXPECT_EQ(scaled_rate(0.1, 4096, 256, BatchScaling::sqrt), 0.4);
  EXPECT_EQ(scaled_rate(0.5, 64, 256, BatchScaling::linear), 0.125);
}

}  // namespace
}  // namespace tutti::training
