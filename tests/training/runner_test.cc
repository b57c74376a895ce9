// Tests that micro-batches give the same bits if a model is run as a whole and if it is run in
// parts.
#include "training/pipeline/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/host_tensor.h"
#include "tests/training/support/model_pass.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kContext = 5, kVocabulary = 19;
constexpr double kLossScale = 0.25;

struct Case {
  DType dtype = DType::f32;
  bool tied = false;
  bool checkpoint_units = false;
};

// The units are embed, h.0, h.1, h.2 and head.
struct Rig {
  explicit Rig(const Case& c)
      : model({.layers = 3,
               .heads = 2,
               .width = 12,
               .context = kContext,
               .vocabulary = kVocabulary,
               .tied = c.tied,
               .dropout = 0.2}),
        parameters(model.parameters(), c.dtype, 0.2),
        runner(model, {.dtype = c.dtype, .checkpoint_units = c.checkpoint_units, .seed = 5}) {
    for (uint64_t i = 0; i < 3; ++i) {
      batches.push_back(std::make_unique<TokenBatch>(2, kContext, kVocabulary, 2 * i));
    }
  }
  const MicroBatch& batch(int i) const { return batches[static_cast<size_t>(i)]->micro_batch; }

  // Runs forward through some units.
  Tensor forward(UnitRange units, int slot, int i, ConstTensor input) {
    return runner.forward({.units = units, .slot = slot}, batch(i), input, {kLossScale}, hooks);
  }

  Gpt model;
  BoundParameters parameters;
  ModelRunner runner;
  UnitHooks hooks;
  std::vector<std::unique_ptr<TokenBatch>> batches;
};

HostTensor copy(ConstTensor tensor) { return rounded_to(tensor.dtype, tensor); }

struct Outcome {
  std::vector<double> losses;
  std::unique_ptr<Rig> rig;
};

// Runs one micro-batch after another through the whole model.
Outcome plain(const Case& c) {
  Outcome outcome{{}, std::make_unique<Rig>(c)};
  Rig& rig = *outcome.rig;
  for (int i = 0; i < 3; ++i) {
    outcome.losses.push_back(rig.runner.train(rig.batch(i), {kLossScale}, rig.hooks).loss_sum);
  }
  return outcome;
}

void expect_same(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_TRUE(same_gradients(found.rig->parameters, expected.rig->parameters));
}

bool gradients_are_zero(Rig& rig) {
  for (int i = 0; i < rig.parameters.size(); ++i) {
    for (const double value : doubles(rig.parameters.gradient(i))) {
      if (value != 0) return false;
    }
  }
  return true;
}

class RunnerTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Models, RunnerTest,
                         ::testing::Values(Case{}, Case{.checkpoint_units = true},
                                           Case{.tied = true}, Case{.dtype = DType::bf16},
                                           Case{.dtype = DType::bf16, .checkpoint_units = true}),
                         [](const auto& info) {
                           return std::string(name(info.param.dtype)) +
                                  (info.param.tied ? "Tied" : "") +
                                  (info.param.checkpoint_units ? "Checkpointed" : "");
                         });

TEST_P(RunnerTest, PartsEqualTheWhole) {
  const Outcome expected = plain(GetParam());
  for (const int cut : {1, 2, 4}) {
    Outcome outcome{{}, std::make_unique<Rig>(GetParam())};
    Rig& rig = *outcome.rig;
    for (int i = 0; i < 3; ++i) {
      const Tensor between = rig.forward({0, cut}, 0, i, {});
      EXPECT_EQ(rig.runner.result(0).loss_sum, 0) << "without the last unit";
      rig.forward({cut, 5}, 1, i, between);
      outcome.losses.push_back(rig.runner.result(1).loss_sum);
      const HostTensor gradient = copy(rig.runner.backward(1, {}, rig.hooks));
      EXPECT_TRUE(rig.runner.backward(0, gradient, rig.hooks).empty());
    }
    expect_same(outcome, expected);
  }
}

TEST_P(RunnerTest, SeveralMicroBatchesInFlightInSlots) {
  Outcome outcome{{}, std::make_unique<Rig>(GetParam())};
  Rig& rig = *outcome.rig;
  // As in 1F1B, two micro-batches are in flight, and the third takes the slot of the first.
  rig.forward({0, 5}, 0, 0, {});
  outcome.losses.push_back(rig.runner.result(0).loss_sum);
  rig.forward({0, 5}, 1, 1, {});
  outcome.losses.push_back(rig.runner.result(1).loss_sum);
  rig.runner.backward(0, {}, rig.hooks);
  rig.forward({0, 5}, 0, 2, {});
  outcome.losses.push_back(rig.runner.result(0).loss_sum);
  rig.runner.backward(1, {}, rig.hooks);
  rig.runner.backward(0, {}, rig.hooks);
  expect_same(outcome, plain(GetParam()));
  EXPECT_EQ(rig.runner.slot_bytes().size(), 2u);
  EXPECT_THAT(rig.runner.slot_bytes(), Each(rig.runner.slot_bytes()[0]));
}

TEST_P(RunnerTest, BackwardInTwoParts) {
  Outcome outcome{{}, std::make_unique<Rig>(GetParam())};
  Rig& rig = *outcome.rig;
  std::vector<HostTensor> between;
  for (int i = 0; i < 3; ++i) {
    const Tensor output = rig.forward({0, 2}, i, i, {});
    rig.forward({2, 5}, 3 + i, i, output);
    outcome.losses.push_back(rig.runner.result(3 + i).loss_sum);
  }
  for (int i = 0; i < 3; ++i) {
    between.push_back(copy(rig.runner.backward_input(3 + i, {}, rig.hooks)));
    EXPECT_TRUE(rig.runner.backward_input(i, between.back(), rig.hooks).empty());
  }
  EXPECT_TRUE(gradients_are_zero(rig)) << "of weights: they are put off";
  for (int i = 0; i < 3; ++i) {
    rig.runner.backward_weight(3 + i, rig.hooks);
    rig.runner.backward_weight(i, rig.hooks);
  }
  expect_same(outcome, plain(GetParam()));
}

TEST_P(RunnerTest, ForwardOnlyEqualsForwardInParts) {
  Rig rig(GetParam());
  const HostTensor kept = copy(rig.forward({0, 2}, 0, 0, {}));
  // Training has dropout, so that its output differs from that without training. Without dropout,
  // both outputs are equal.
  Rig dry(GetParam());
  const Tensor alone =
      dry.runner.forward_only({.units = {0, 2}, .slot = 0}, dry.batch(0), {}, dry.hooks);
  EXPECT_FALSE(same_bits(alone, kept));

  const PassResult whole = dry.runner.evaluate(dry.batch(0), dry.hooks);
  const HostTensor half =
      copy(dry.runner.forward_only({.units = {0, 3}, .slot = 0}, dry.batch(0), {}, dry.hooks));
  dry.runner.forward_only({.units = {3, 5}, .slot = 1}, dry.batch(0), half, dry.hooks);
  EXPECT_EQ(dry.runner.result(1).loss_sum, whole.loss_sum);
  EXPECT_EQ(dry.runner.result(1).correct, whole.correct);
  EXPECT_NE(whole.loss_sum, 0);
}

TEST(RunnerResult, NamesTheFirstUnitThatBroke) {
  for (const bool checkpoint_units : {false, true}) {
    Rig rig({.checkpoint_units = checkpoint_units});
    const auto& specs = rig.model.parameters().specs();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].name != "h.1.ln_1.weight") continue;
      set(rig.parameters.value(static_cast<int>(i)), 0, 0, std::nan(""));
    }
    const Tensor sound = rig.forward({0, 2}, 0, 0, {});
    EXPECT_EQ(rig.runner.result(0).broken_unit, std::nullopt);
    const Tensor broken = rig.forward({2, 4}, 1, 0, sound);
    EXPECT_EQ(rig.runner.result(1).broken_unit, 2);
    rig.forward({4, 5}, 2, 0, broken);
    EXPECT_EQ(rig.runner.result(2).broken_unit, 4) << "the input was broken already";
    EXPECT_EQ(rig.runner.train(rig.batch(0), {}, rig.hooks).broken_unit, 2);
  }
}

// --- hooks ---

class Log : public UnitHooks {
 public:
  void before_forward(int unit) override { add("f", unit); }
  void after_forward(int unit) override { add("F", unit); }
  void before_backward(int unit) override { add("b", unit); }
  void after_backward(int unit) override { add("B", unit); }
  void before_weights(int unit) override { add("w", unit); }
  void after_weights(int unit) override { add("W", unit); }

  // Returns the calls since the last take().
  std::vector<std::string> take() { return std::exchange(calls_, {}); }

 private:
  void add(const std::string& what, int unit) { calls_.push_back(what + std::to_string(unit)); }

  std::vector<std::string> calls_;
};

TEST(RunnerHooks, HooksRunAroundEachUnit) {
  Rig rig({.checkpoint_units = true});
  Log log;
  const Tensor input = rig.forward({0, 1}, 1, 0, {});
  const HostTensor gradient = random_tensor(DType::f32, input.rows, input.cols, 1);
  const auto forward = [&] {
    rig.runner.forward({.units = {1, 4}, .slot = 0}, rig.batch(0), input, {}, log);
    EXPECT_THAT(log.take(), ElementsAre("f1", "F1", "f2", "F2", "f3", "F3"));
  };
  forward();
  rig.runner.backward(0, gradient, log);
  EXPECT_THAT(log.take(), ElementsAre("b3", "B3", "W3", "b2", "B2", "W2", "b1", "B1", "W1"));
  forward();
  rig.runner.backward_input(0, gradient, log);
  EXPECT_THAT(log.take(), ElementsAre("b3", "B3", "b2", "B2", "b1", "B1"));
  rig.runner.backward_weight(0, log);
  EXPECT_THAT(log.take(), ElementsAre("w3", "W3", "w2", "W2", "w1", "W1"));
}

// --- weight 0 ---

// A micro-batch of weight 0 adds nothing to the gradients, even if its own gradients contain NaNs.
TEST_P(RunnerTest, AMicroBatchOfWeightZeroLeavesTheGradientsAlone) {
  Outcome outcome = plain(GetParam());
  Rig& rig = *outcome.rig;
  MicroBatch weightless = rig.batch(1);
  weightless.weight = 0;
  rig.runner.train(weightless, {}, rig.hooks);
  rig.runner.forward({.units = {0, 5}}, weightless, {}, {}, rig.hooks);
  rig.runner.backward_input(0, {}, rig.hooks);
  rig.runner.backward_weight(0, rig.hooks);
  const Tensor first = rig.parameters.value(0);
  const double kept = get(first, 0, 0);
  for (int64_t row = 0; row < kVocabulary; ++row) set(first, row, 0, std::nan(""));
  EXPECT_TRUE(std::isnan(rig.runner.train(weightless, {}, rig.hooks).loss_sum));
  set(first, 0, 0, kept);
  EXPECT_TRUE(same_gradients(rig.parameters, plain(GetParam()).rig->parameters));
}

}  // namespace
}  // namespace tutti::training::testing
