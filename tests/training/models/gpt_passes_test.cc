// Tests that options do not change a bit: recomputation, deferred weight gradients, and several
// micro-batches in flight. Also tests that dividing samples into micro-batches changes only
// rounding.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {
namespace {

struct Case {
  GptConfig config;
  DType dtype = DType::f32;
};

constexpr int64_t kContext = 13, kVocabulary = 31;

std::vector<Case> cases() {
  const GptConfig gpt2{
      .layers = 2, .heads = 3, .width = 18, .context = kContext, .vocabulary = kVocabulary};
  GptConfig llama = gpt2;
  llama.norm = NormKind::rms;
  llama.mlp = MlpKind::swiglu;
  llama.positions = Positions::rope;
  llama.tied = false;
  llama.bias = false;
  std::vector<Case> cases;
  for (const double dropout : {0.0, 0.2}) {
    for (GptConfig config : {gpt2, llama}) {
      config.dropout = dropout;
      for (const DType type : {DType::f32, DType::bf16}) cases.push_back({config, type});
    }
  }
  return cases;
}

// A model with its parameters and gradients.
struct Rig {
  explicit Rig(const Case& c) : model(c.config), parameters(model.parameters(), c.dtype, 0.2) {}

  Gpt model;
  BoundParameters parameters;
};

// Two micro-batches of two samples each. Both use one arena.
struct TwoPasses {
  explicit TwoPasses(DType dtype) {
    for (size_t i = 0; i < 2; ++i) {
      passes[i].batch = &batches[i].micro_batch;
      passes[i].dtype = dtype;
      passes[i].seed = 3;
      passes[i].loss_scale = 0.25;
      passes[i].slot = static_cast<int>(i);
    }
  }

  Arena arena{size_t{1} << 28};
  std::array<TokenBatch, 2> batches{TokenBatch(2, kContext, kVocabulary, 8),
                                    TokenBatch(2, kContext, kVocabulary, 10)};
  std::array<Pass, 2> passes{Pass{{}, arena}, Pass{{}, arena}};
};

struct Outcome {
  std::vector<double> losses;
  std::unique_ptr<Rig> rig;
};

// Runs the micro-batches one after another. Each uses slot 0, and defers no work.
Outcome plain(const Case& c) {
  Outcome outcome{{}, std::make_unique<Rig>(c)};
  TwoPasses two(c.dtype);
  for (Pass& pass : two.passes) {
    const ArenaScope scope(two.arena);
    pass.slot = 0;
    forward(outcome.rig->model, pass);
    backward(outcome.rig->model, pass);
    outcome.losses.push_back(pass.loss.get().sum);
  }
  return outcome;
}

void expect_same(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_TRUE(same_gradients(found.rig->parameters, expected.rig->parameters));
}

class GptPassesTest : public ::testing::TestWithParam<Case> {};

TEST_P(GptPassesTest, SelectiveRecomputationChangesNothingButMemory) {
  Case selective = GetParam();
  selective.config.compute.selective_recomputation = true;
  expect_same(plain(selective), plain(GetParam()));
  size_t saved[2];
  for (const bool on : {false, true}) {
    Rig rig(on ? selective : GetParam());
    TwoPasses two(GetParam().dtype);
    forward(rig.model, two.passes[0]);
    saved[on ? 1 : 0] = two.arena.mark();
  }
  EXPECT_LT(saved[1], saved[0]);
}

TEST_P(GptPassesTest, WeightsLater) {
  Outcome outcome{{}, std::make_unique<Rig>(GetParam())};
  TwoPasses two(GetParam().dtype);
  for (Pass& pass : two.passes) {
    pass.split = true;
    forward(outcome.rig->model, pass);
    outcome.losses.push_back(pass.loss.get().sum);
  }
  for (Pass& pass : two.passes) backward(outcome.rig->model, pass);
  for (int i = 0; i < outcome.rig->parameters.size(); ++i) {
    const Tensor gradient = outcome.rig->parameters.gradient(i);
    EXPECT_EQ(doubles(gradient), std::vector<double>(static_cast<size_t>(gradient.size())));
  }
  for (Pass& pass : two.passes) finish_weights(pass);
  expect_same(outcome, plain(GetParam()));
}

TEST_P(GptPassesTest, SelectiveAndWeightsLater) {
  Case selective = GetParam();
  selective.config.compute.selective_recomputation = true;
  Outcome outcome{{}, std::make_unique<Rig>(selective)};
  TwoPasses two(GetParam().dtype);
  for (Pass& pass : two.passes) {
    pass.split = true;
    forward(outcome.rig->model, pass);
    outcome.losses.push_back(pass.loss.get().sum);
  }
  for (Pass& pass : two.passes) backward(outcome.rig->model, pass);
  for (Pass& pass : two.passes) finish_weights(pass);
  expect_same(outcome, plain(GetParam()));
}

TEST_P(GptPassesTest, TwoMicroBatchesInFlight) {
  Outcome outcome{{}, std::make_unique<Rig>(GetParam())};
  TwoPasses two(GetParam().dtype);
  for (Pass& pass : two.passes) forward(outcome.rig->model, pass);
  for (Pass& pass : two.passes) {
    backward(outcome.rig->model, pass);
    outcome.losses.push_back(pass.loss.get().sum);
  }
  expect_same(outcome, plain(GetParam()));
}

// Runs the backward passes of both micro-batches unit by unit, in turns, as pipelines do.
TEST_P(GptPassesTest, UnitsInTurns) {
  Outcome outcome{{}, std::make_unique<Rig>(GetParam())};
  TwoPasses two(GetParam().dtype);
  const auto& units = outcome.rig->model.units();
  std::array<Tensor, 2> tensors;
  for (const auto& unit : units) {
    for (size_t i = 0; i < 2; ++i) tensors[i] = unit->forward(two.passes[i], tensors[i]);
  }
  for (size_t unit = units.size(); unit-- > 0;) {
    for (size_t i = 0; i < 2; ++i) tensors[i] = units[unit]->backward(two.passes[i], tensors[i]);
  }
  for (const Pass& pass : two.passes) outcome.losses.push_back(pass.loss.get().sum);
  const Outcome expected = plain(GetParam());
  EXPECT_EQ(outcome.losses, expected.losses);
  if (!GetParam().config.tied) {  // the gradients of a tied weight would be added in another order
    expect_same(outcome, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GptPassesTest, ::testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return std::string(c.config.tied ? "gpt2_" : "llama_") + std::string(name(c.dtype)) +
         (c.config.dropout > 0 ? "_dropout" : "");
});

// Divides the same samples into micro-batches of 1, 2 and 4, with dropout.
TEST(GptMicroBatchTest, CutsChangeNothingButRounding) {
  for (Case c : cases()) {
    c.dtype = DType::f64;
    std::vector<std::vector<double>> logits, gradients;
    for (const int64_t size : {1, 2, 4}) {
      Rig rig(c);
      TestPass test;
      test.pass.seed = 3;
      std::vector<double> all;
      for (int64_t first = 0; first < 4; first += size) {
        const TokenBatch batch(size, kContext, kVocabulary, 40 + static_cast<uint64_t>(first));
        test.batch = batch.micro_batch;
        const std::vector<double> part = doubles(forward(rig.model, test.pass));
        all.insert(all.end(), part.begin(), part.end());
        backward(rig.model, test.pass);
      }
      logits.push_back(all);
      gradients.emplace_back();
      for (int i = 0; i < rig.parameters.size(); ++i) {
        const std::vector<double> gradient = doubles(rig.parameters.gradient(i));
        gradients.back().insert(gradients.back().end(), gradient.begin(), gradient.end());
      }
    }
    for (const size_t cut : {1, 2}) {
      EXPECT_LT(relative_distance(logits[cut], logits[0]), 1e-13);
      EXPECT_LT(relative_distance(gradients[cut], gradients[0]), 1e-13);
    }
  }
}

TEST(GptMicroBatchTest, NothingIsDroppedWithoutTraining) {
  Case c = cases().front();
  const TokenBatch batch(2, kContext, kVocabulary);
  const auto logits = [&](double dropout, bool training) {
    c.config.dropout = dropout;
    Rig rig(c);
    TestPass test(DType::f32);
    test.pass.training = training;
    test.batch = batch.micro_batch;
    return doubles(forward(rig.model, test.pass));
  };
  EXPECT_EQ(logits(0.5, false), logits(0, false));
  EXPECT_NE(logits(0.5, true), logits(0, true));
}

}  // namespace
}  // namespace tutti::training::testing
