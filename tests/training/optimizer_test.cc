#include "training/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tutti::training {
namespace {

// A matrix of one element and a bias of one element, so that weight decay can be told apart.
class OptimizerTest : public testing::Test {
 protected:
  OptimizerTest() : parameters_(make_layout({{"weight", {1, 1}}, {"bias", {1}}})) {
    weight() = 1.0f;
    bias() = 2.0f;
  }
  float& weight() { return parameters_.at(0).value[0]; }
  float& bias() { return parameters_.at(1).value[0]; }
  void step(Optimizer& optimizer, float learning_rate, float gradient) {
    parameters_.at(0).gradient[0] = gradient;
    parameters_.at(1).gradient[0] = gradient;
    optimizer.step(parameters_, learning_rate);
  }

  Parameters parameters_;
};

TEST_F(OptimizerTest, SgdWithMomentumAndDecay) {
  Sgd sgd({.momentum = 0.9f, .weight_decay = 0.5f});
  step(sgd, 0.1f, 1.0f);
  // The first step's momentum is the gradient: weight 1 + 0.5 * 1, bias 1.
  EXPECT_FLOAT_EQ(weight(), 0.85f);
  EXPECT_FLOAT_EQ(bias(), 1.9f);
  step(sgd, 0.1f, -2.0f);
  // weight: -2 + 0.5 * 0.85 + 0.9 * 1.5 = -0.225; bias: -2 + 0.9 = -1.1
  EXPECT_FLOAT_EQ(weight(), 0.8725f);
  EXPECT_FLOAT_EQ(bias(), 2.01f);
}

TEST_F(OptimizerTest, SgdWithNesterovMomentum) {
  Sgd sgd({.momentum = 0.5f, .nesterov = true});
  step(sgd, 0.1f, 1.0f);
  EXPECT_FLOAT_EQ(bias(), 2.0f - 0.1f * 1.5f);
  step(sgd, 0.1f, 1.0f);
  EXPECT_FLOAT_EQ(bias(), 1.85f - 0.1f * 1.75f);
}

TEST_F(OptimizerTest, AdamWsFirstStepHasTheSizeOfTheLearningRate) {
  AdamW adamw({.epsilon = 0.0f, .weight_decay = 0.1f});
  step(adamw, 0.01f, -3.0f);
  EXPECT_FLOAT_EQ(weight(), 1.0f * (1 - 0.01f * 0.1f) + 0.01f);
  EXPECT_FLOAT_EQ(bias(), 2.0f + 0.01f);
}

TEST_F(OptimizerTest, AdamWFollowsTheFormulas) {
  const double beta1 = 0.8, beta2 = 0.95, epsilon = 0.1, decay = 0.2, rate = 0.05;
  AdamW adamw({.beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 0.1f, .weight_decay = 0.2f});
  double expected = 1, m = 0, v = 0;
  int t = 0;
  for (const double gradient : {0.5, -1.0, 0.25, 0.0, 2.0}) {
    ++t;
    step(adamw, static_cast<float>(rate), static_cast<float>(gradient));
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    expected -= rate * decay * expected;
    expected -= rate * m_hat / (std::sqrt(v_hat) + epsilon);
    EXPECT_NEAR(weight(), expected, 1e-6) << "step " << t;
  }
}

TEST_F(OptimizerTest, DecayOnAllReachesTheBias) {
  AdamW adamw({.weight_decay = 0.5f, .decay_on = DecayOn::all});
  step(adamw, 0.1f, 0.0f);
  EXPECT_FLOAT_EQ(bias(), 2.0f * 0.95f);
}

TEST_F(OptimizerTest, LeavesTheGapsAtZero) {
  AdamW adamw;
  step(adamw, 0.1f, 1.0f);
  step(adamw, 0.1f, 1.0f);
  for (size_t i = 1; i < 16; ++i) EXPECT_EQ(parameters_.values()[i], 0.0f);
}

TEST(LearningRateScheduleTest, WarmsUpThenFallsAsACosine) {
  const LearningRateSchedule schedule{
      .peak = 1.0f, .warmup_steps = 4, .total_steps = 15, .final_fraction = 0.1f};
  EXPECT_FLOAT_EQ(schedule.at(0), 0.25f);
  EXPECT_FLOAT_EQ(schedule.at(3), 1.0f);
  EXPECT_FLOAT_EQ(schedule.at(4), 1.0f);
  EXPECT_FLOAT_EQ(schedule.at(9), 0.55f);  // half way
  EXPECT_FLOAT_EQ(schedule.at(14), 0.1f);
  EXPECT_FLOAT_EQ(schedule.at(100), 0.1f);
}

TEST(LearningRateScheduleTest, WorksWhenWarmUpIsAllThereIs) {
  const LearningRateSchedule schedule{.peak = 1.0f, .warmup_steps = 10, .total_steps = 5};
  EXPECT_FLOAT_EQ(schedule.at(4), 0.5f);
  EXPECT_FLOAT_EQ(LearningRateSchedule{.peak = 2.0f}.at(0), 2.0f);
}

}  // namespace
}  // namespace tutti::training
