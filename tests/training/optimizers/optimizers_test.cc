// Tests first steps against closed forms, the options, and errors. pytorch_test.cc tests more
// steps, same_bits_test.cc layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/reduce.h"
#include "training/optimizers/adamw.h"
#include "training/optimizers/lamb.h"
#include "training/optimizers/lars.h"
#include "training/optimizers/sgd.h"

namespace tutti::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The parameters are a matrix (3, 4), whose norm is 5, and a bias (0, 2, 0), which does not decay.
class OptimizersTest : public testing::Test {
 protected:
  void step(Optimizer& optimizer, double learning_rate, float gradient) {
    matrix_gradient_.assign(2, gradient);
    bias_gradient_.assign(3, gradient);
    states_.resize(optimizer.state_names().size(), std::vector<float>(64));
    ++options_.step;
    options_.learning_rate = learning_rate;
    run(optimizer);
  }
  void run(Optimizer& optimizer) {
    const std::vector<OwnedPiece> pieces = {{{.parameter = 0, .count = 2, .owned_offset = 0},
                                             &specs_[0],
                                             matrix_,
                                             tensor_at(matrix_gradient_.data(), DType::f32, 1, 2),
                                             {}},
                                            {{.parameter = 1, .count = 3, .owned_offset = 32},
                                             &specs_[1],
                                             bias_,
                                             tensor_at(bias_gradient_.data(), DType::f32, 1, 3),
                                             {}}};
    run(optimizer, pieces);
  }
  void run(Optimizer& optimizer, const std::vector<OwnedPiece>& pieces) {
    const std::vector<std::span<float>> states(states_.begin(), states_.end());
    NormReducer alone;
    optimizer.step(pieces, states, options_, alone);
  }

  std::vector<ParameterSpec> specs_ = {{.name = "matrix", .shape = {2, 1}},
                                       {.name = "bias", .shape = {3}, .decays = false}};
  std::vector<float> matrix_ = {3, 4};
  std::vector<float> bias_ = {0, 2, 0};
  std::vector<float> matrix_gradient_ = {0, 0};
  std::vector<float> bias_gradient_ = {0, 0, 0};
  std::vector<std::vector<float>> states_;
  StepOptions options_{.step = 0, .parameters = 2};
};

TEST_F(OptimizersTest, StatesAreNamedAsInPyTorch) {
  EXPECT_THAT(Sgd().state_names(), ElementsAre("momentum"));
  EXPECT_THAT(Sgd({.momentum = 0}).state_names(), ElementsAre());
  EXPECT_THAT(AdamW().state_names(), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(Lamb().state_names(), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(Lars().state_names(), ElementsAre("momentum"));
}

TEST_F(OptimizersTest, SgdWithMomentumAndDecay) {
  Sgd sgd({.momentum = 0.5, .weight_decay = 0.25});
  step(sgd, 0.5, 1);
  EXPECT_THAT(matrix_, ElementsAre(3 - 0.5 * 1.75, 4 - 0.5 * 2));
  EXPECT_THAT(bias_, ElementsAre(-0.5, 1.5, -0.5));
  step(sgd, 0.5, -2);
  EXPECT_THAT(bias_, ElementsAre(0.25, 2.25, 0.25));  // the momentum is -2 + 0.5 * 1
  EXPECT_THAT(states_[0][32], -1.5);
}

TEST_F(OptimizersTest, SgdWithNesterovMomentum) {
  Sgd sgd({.momentum = 0.5, .nesterov = true});
  step(sgd, 1, 1);
  EXPECT_THAT(bias_, ElementsAre(-1.5, 0.5, -1.5));
  step(sgd, 1, 1);
  EXPECT_THAT(bias_, ElementsAre(-3.25, -1.25, -3.25));
}

TEST_F(OptimizersTest, PlainSgdScalesGradients) {
  Sgd sgd({.momentum = 0});
  options_.gradient_factor = 0.25;
  step(sgd, 0.5, 8);
  EXPECT_THAT(bias_, ElementsAre(-1, 1, -1));
}

TEST_F(OptimizersTest, AdamWsFirstStepHasTheSizeOfTheLearningRate) {
  AdamW adamw({.moments = {.epsilon = 0}, .weight_decay = 0.5});
  step(adamw, 0.5, -3);
  // Equal up to the rounding of constants such as 1 - 0.9 to float.
  EXPECT_FLOAT_EQ(matrix_[0], 3 * 0.75f + 0.5f);
  EXPECT_FLOAT_EQ(bias_[1], 2.5f);
}

TEST_F(OptimizersTest, LambsFirstStepHasTheNormOfTheLayer) {
  Lamb lamb({.moments = {.epsilon = 0}, .weight_decay = 0});
  step(lamb, 0.5, -3);
  // The direction is (-1, -1), whose norm is sqrt(2).
  EXPECT_FLOAT_EQ(matrix_[0], 3 + 0.5f * 5 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(bias_[1], 2.5f);  // a parameter without decay keeps the common rate
}

TEST_F(OptimizersTest, LambAddsDecayToTheDirection) {
  Lamb lamb({.moments = {.epsilon = 1}, .weight_decay = 0.5});
  step(lamb, 0.5, 0);
  // The direction is 0.5 * (3, 4), and the norm of the step is half the layer's norm.
  EXPECT_THAT(matrix_, ElementsAre(1.5, 2));
  EXPECT_THAT(bias_, ElementsAre(0, 2, 0));
}

TEST_F(OptimizersTest, LarssFirstStepIsAFractionOfTheLayer) {
  Lars lars({.weight_decay = 0, .trust_coefficient = 0.5});
  options_.gradient_factor = -0.125;
  step(lars, 0.5, 8);
  EXPECT_FLOAT_EQ(matrix_[0], 3 + 0.5f * 0.5f * 5 / std::sqrt(2.0f));
  EXPECT_THAT(bias_, ElementsAre(0.5, 2.5, 0.5));
}

TEST_F(OptimizersTest, LarsDecaysWithinTheLocalRate) {
  Lars lars({.weight_decay = 0.5, .trust_coefficient = 0.5});
  matrix_ = {4, 4};
  step(lars, 1, 2);
  // Because |w| = 2 |g|, the local rate is 0.5 * 2 / (1 + 0.5 * 2) = 0.5. It multiplies 2 + 0.5 *
  // 4.
  EXPECT_FLOAT_EQ(matrix_[0], 2);
}

TEST_F(OptimizersTest, LayersWithoutValuesOrGradientsKeepTheCommonRate) {
  Lars lars({.weight_decay = 0.5, .decay_on = DecayOn::all});
  matrix_ = {0, 0};
  step(lars, 0.5, 1);
  EXPECT_THAT(matrix_, ElementsAre(-0.5, -0.5));
  Lamb lamb({.moments = {.epsilon = 0}, .weight_decay = 0});
  matrix_ = {0, 0};
  options_.step = 0;
  states_.clear();
  step(lamb, 0.5, 1);
  EXPECT_FLOAT_EQ(matrix_[0], -0.5f);
}

TEST_F(OptimizersTest, DecayOnAllReachesTheBias) {
  AdamW adamw({.weight_decay = 0.5, .decay_on = DecayOn::all});
  step(adamw, 0.5, 0);
  EXPECT_THAT(bias_, ElementsAre(0, 1.5, 0));
}

TEST_F(OptimizersTest, LeavesTheGapsBetweenPiecesAlone) {
  AdamW adamw;
  step(adamw, 0.1, 1);
  for (size_t i = 0; i < 64; ++i) {
    const bool in_piece = i < 2 || (i >= 32 && i < 35);
    EXPECT_EQ(states_[0][i] != 0, in_piece) << i;
  }
}

TEST_F(OptimizersTest, WritesTheModelsCopy) {
  Sgd sgd({.momentum = 0});
  options_.step = 1;
  options_.learning_rate = 1;
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    std::vector<float> master = {1, 1, 1};
    const std::vector<float> gradient = {-0x1p-8f, -0x1.8p-7f, 0x1p-20f};
    std::vector<float> copy(3), memory(3);
    run(sgd, {{.piece = {.count = 3},
               .spec = &specs_[1],
               .master = master,
               .gradient = tensor_at(gradient.data(), DType::f32, 1, 3),
               .value = tensor_at(memory.data(), type, 1, 3)}});
    EXPECT_THAT(master, ElementsAre(1 + 0x1p-8f, 1 + 0x1.8p-7f, 1 - 0x1p-20f));
    if (type == DType::f32) {
      EXPECT_EQ(memory, master);
      continue;
    }
    widen(copy.data(), memory.data(), 3, type);
    // Rounding goes to the nearest value, ties to the even one.
    const bool bf16 = type == DType::bf16;
    EXPECT_THAT(copy, ElementsAre(bf16 ? 1 : 1 + 0x1p-8f, bf16 ? 1 + 0x1p-6f : 1 + 0x1.8p-7f, 1));
  }
}

TEST_F(OptimizersTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(Sgd({.momentum = 1}), Error);
  EXPECT_THROW(Sgd({.weight_decay = -1}), Error);
  EXPECT_THROW(AdamW({.moments = {.beta1 = 1}}), Error);
  EXPECT_THROW(AdamW({.moments = {.beta2 = -0.1}}), Error);
  EXPECT_THROW(Lamb({.moments = {.epsilon = -1}}), Error);
  EXPECT_THROW(Lars({.trust_coefficient = 0}), Error);
}

class RefusedStepTest : public OptimizersTest {
 protected:
  // Spoils the second piece. The optimizer must refuse it and must not modify the first piece.
  void expect_refused(Optimizer& optimizer, const std::function<void(OwnedPiece&)>& spoil,
                      const char* words) {
    states_.resize(optimizer.state_names().size(), std::vector<float>(64));
    options_.step = 1;
    options_.learning_rate = 1;
    const OwnedPiece good{{.parameter = 0, .count = 2},
                          &specs_[0],
                          matrix_,
                          tensor_at(gradient_.data(), DType::f32, 1, 2),
                          {}};
    OwnedPiece bad = good;
    bad.spec = &specs_[1];
    spoil(bad);
    try {
      run(optimizer, {good, bad});
      ADD_FAILURE() << "accepted: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
    EXPECT_THAT(matrix_, ElementsAre(3, 4));
  }
  std::vector<float> gradient_ = {1, 1};
};

TEST_F(RefusedStepTest, NamesThePieceAndChangesNothing) {
  Sgd sgd;
  expect_refused(
      sgd, [](OwnedPiece& piece) { piece.gradient.cols = 1; }, "gradient of another");
  expect_refused(
      sgd, [](OwnedPiece& piece) { piece.gradient.dtype = DType::f64; }, "bias");
  expect_refused(
      sgd, [](OwnedPiece& piece) { piece.master = {}; }, "neither a master nor a value");
  expect_refused(
      sgd, [](OwnedPiece& piece) { piece.master = piece.master.first(1); }, "another size");
  expect_refused(
      sgd, [](OwnedPiece& piece) { piece.piece.first = 16; }, "aligned block");
  expect_refused(
      sgd, [](OwnedPiece& piece) { piece.piece.owned_offset = 63; }, "only 64 floats");
}

TEST_F(RefusedStepTest, CountsStatesAndParameters) {
  Lamb lamb;
  options_.parameters = 1;
  expect_refused(
      lamb, [](OwnedPiece& piece) { piece.piece.parameter = 1; }, "parameters 1");
  states_.resize(2);
  Sgd sgd;
  EXPECT_THROW(run(sgd), Error);
}

}  // namespace
}  // namespace tutti::training
