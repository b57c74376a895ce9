#include "training/optimizers/adafactor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "tests/training/optimizers/one_owner.h"

namespace tutti::training {
namespace {

// Results of five steps of torch.optim.Adafactor (PyTorch 2.15, lr = 0.05, weight_decay = 0.1) on
// the synthetic gradients of one_owner.h. The gradients of the third step are ten times as large.
const std::vector<std::vector<float>> kExpected = {
    {-0.227777332F, -0.113517925F, 0.0295856986F, 0.212663934F, -0.425042719F, -0.112806037F,
     0.255621791F, 0.065394178F, -0.444275826F, 0.14965862F, -0.246055529F, -0.0535512082F,
     0.07746315F, 0.352703154F, -0.268227935F},
    {-0.219567239F, -0.0530700497F, -0.326477885F, 0.253299564F},
    {-0.207559422F, 0.015837444F,   0.364866316F,  0.295302123F,  -0.108269483F, 0.340857863F,
     0.14153938F,   -0.0994892493F, -0.418285549F, 0.273663729F,  -0.333943099F, 0.292476952F,
     0.0279211085F, 0.247523382F,   0.197632939F,  0.415603697F,  -0.338015825F, -0.161044061F,
     -0.237443537F, -0.177473038F,  0.13703312F,   -0.264819145F, -0.130714342F, -0.0643511266F}};

TEST(Adafactor, TakesTheStepsOfPyTorch) {
  Adafactor adafactor({.weight_decay = 0.1});
  OneOwner trained(adafactor,
                   {{.name = "matrix", .shape = {3, 5}},
                    {.name = "vector", .shape = {4}},
                    {.name = "filters", .shape = {2, 3, 2, 2}}},
                   3);
  for (int64_t step = 1; step <= 5; ++step) trained.step(step, 0.05, step == 3 ? 10 : 1);
  for (size_t k = 0; k < kExpected.size(); ++k) {
    for (size_t i = 0; i < kExpected[k].size(); ++i) {
      EXPECT_NEAR(trained.values[k][i], kExpected[k][i], 1e-6) << k << ' ' << i;
    }
  }
}

TEST(Adafactor, KeepsRowsAndColumns) {
  const Adafactor adafactor;
  const ParameterSpec spec{.name = "weight", .shape = {1000, 300}};
  int64_t floats = 0;
  for (const WholeState& state : adafactor.whole_states(spec, 1)) floats += state.count();
  EXPECT_EQ(floats, 1300);
  EXPECT_TRUE(adafactor.state_names().empty());
}

// The matrix is so large that several threads update it.
TEST(Adafactor, UpdatesHaveTheSignsOfTheGradients) {
  Adafactor adafactor;
  OneOwner trained(adafactor, {{.name = "weight", .shape = {100, 700}}}, 1);
  const std::vector<float> before = trained.values[0];
  const std::vector<float> gradients = made_up(70'000, 100);
  trained.step(1, 0.1, 1);
  double squares = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double moved = before[i] - trained.values[0][i];
    EXPECT_GE(moved * gradients[i], 0);
    squares += moved * moved;
  }
  // The root mean square of the step is the rate (0.1) times that of the values (1 / sqrt(12)),
  // because the update is clipped to 1.
  EXPECT_NEAR(std::sqrt(squares / 70'000), 0.1 / std::sqrt(12.0), 1e-3);
}

TEST(Adafactor, WithoutGradientsStaysFinite) {
  Adafactor adafactor;
  OneOwner trained(adafactor, {{.name = "weight", .shape = {3, 4}}}, 1);
  const std::vector<float> before = trained.values[0];
  trained.step(1, 0.1, 0);
  EXPECT_EQ(trained.values[0], before);
}

TEST(Adafactor, BadOptionsAreRefused) {
  EXPECT_THROW(Adafactor({.beta2_decay = -0.8}), Error);
  EXPECT_THROW(Adafactor({.clip_threshold = 0.5}), Error);
  EXPECT_THROW(Adafactor({.least_rms = -1}), Error);
  EXPECT_THROW(Adafactor({.weight_decay = -1}), Error);
}

}  // namespace
}  // namespace tutti::training
