// Tests training in which weight gradients are sent as their factors; an all-reduce of the
// gradients is the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using testing::difference;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::relative_difference;
using testing::TinyRank;
using testing::TinyRun;
using testing::train;
using tutti::testing::run_ranks;

TinyRun with_factors(TinyRun run, FactorLayers layers = FactorLayers::all) {
  run.replica.factors.layers = layers;
  return run;
}

TinyRun mlp_run() {
  TinyRun run;
  run.mlp = {.context = 4, .embedding = 8, .hidden = 48, .layers = 2, .vocabulary = 256};
  run.batch = 12;
  run.micro_batch = 2;
  run.steps = 8;
  return run;
}

TinyRun gpt_run() {
  TinyRun run;
  run.steps = 6;
  run.model.layers = 1;
  run.replica.clip = 0.5;
  return run;
}

TinyRun resnet_run() {
  TinyRun run;
  run.resnet = ResNetConfig{.height = 8, .width = 8, .classes = 5, .blocks = {1}, .widths = {4}};
  run.batch = 8;
  run.micro_batch = 2;
  run.steps = 4;
  return run;
}

// Expects the losses and norms to equal those of an all-reduce up to rounding. train() also fails
// the test if losses or parameters differ between ranks.
void expect_close(int ranks, const TinyRun& run, double tolerance) {
  const Outcome plain = train(ranks, run);
  const Outcome factors = train(ranks, with_factors(run));
  EXPECT_LT(relative_difference(factors.losses, plain.losses), tolerance);
  ASSERT_EQ(factors.norms.size(), plain.norms.size());
  for (size_t i = 0; i < plain.norms.size(); ++i) {
    EXPECT_NEAR(factors.norms[i], plain.norms[i], 10 * tolerance * plain.norms[i]) << i;
  }
  ASSERT_EQ(factors.parameters.size(), plain.parameters.size());
}

class Factors : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Factors, ::testing::Values(1, 2, 3, 4));

TEST_P(Factors, TrainTheSameModel) {
  for (const TinyRun& run : {mlp_run(), gpt_run(), resnet_run()}) {
    expect_close(GetParam(), run, 1e-5);
  }
}

// Uses SGD, because optimizers that divide by a square root of the gradients would amplify the
// rounding differences.
TEST_P(Factors, GiveTheSameParameters) {
  TinyRun run = mlp_run();
  run.optimizer = {{"name", "sgd"}};
  run.learning_rate = 0.1;
  const Outcome plain = train(GetParam(), run);
  const Outcome factors = train(GetParam(), with_factors(run));
  for (size_t i = 0; i < plain.parameters.size(); ++i) {
    double square = 0, differences = 0;
    for (size_t j = 0; j < plain.parameters[i].size(); ++j) {
      square += std::pow(plain.parameters[i][j], 2);
      differences += std::pow(factors.parameters[i][j] - plain.parameters[i][j], 2);
    }
    EXPECT_LE(std::sqrt(differences), 1e-5 * std::sqrt(square)) << i;
  }
}

// In the last step some ranks have fewer samples, or none.
TEST_P(Factors, TakeUnevenRows) {
  TinyRun run = mlp_run();
  run.last_batch = 3;
  expect_close(GetParam(), run, 1e-5);
}

TEST_P(Factors, Bf16FactorsGiveTheSameUpdate) {
  TinyRun run = mlp_run();
  run.replica.storage.dtype = DType::bf16;
  expect_close(GetParam(), run, 2e-3);  // gradients are summed in f32
  run.batch = static_cast<uint64_t>(GetParam()) * run.micro_batch;
  expect_close(GetParam(), run, 2e-2);  // with one micro-batch, gradients are in bf16
}

TEST_P(Factors, ScaledLossesGiveTheSameUpdate) {
  TinyRun run = mlp_run();
  run.replica.storage.dtype = DType::f16;
  run.replica.loss_scaling =
      LossScalerOptions{.initial_scale = 0x1p24};  // so large that the first steps overflow
  expect_close(GetParam(), run, 1e-3);
}

TEST(FactorLayouts, TrainTheSameModel) {
  TinyRun run = gpt_run();
  run.batch = 8;
  run.replica.data_parallel.overlap = false;
  expect_close(2, run, 1e-5);
  run.replica.data_parallel.overlap = true;
  run.replica.storage.stage = 1;
  expect_close(3, run, 1e-5);
  run.replica.storage.stage = 0;
  run.replica.runner.checkpoint_units = true;
  expect_close(2, run, 1e-5);
  run.mesh.context = 2;
  expect_close(4, run, 1e-5);
  run.mesh = {.pipeline = 2};
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    SCOPED_TRACE(schedule);
    run.replica.pipeline.schedule = schedule;
    expect_close(4, run, 1e-5);
  }
}

// Returns the names of the parameters whose gradients are sent as factors.
std::vector<std::string> chosen(const TinyRun& run) {
  std::vector<std::string> names;
  run_ranks(2, [&](const Job& job) {
    const TinyRank rank(job, run);
    if (job.rank != 0) return;
    for (const FactorTraffic& layer : rank.replica.factors()) names.push_back(layer.name);
  });
  return names;
}

// The factors of K samples are K (M + N) values; an all-reduced gradient is sent as 2 M N values.
// The layers have 48 x 32 (hidden.0), 48 x 48 (hidden.1) and 256 x 48 (head) weights.
TEST(AutomaticFactors, FactorsAreUsedWhereTheyTakeFewerBytes) {
  TinyRun run = with_factors(mlp_run(), FactorLayers::automatic);
  using Names = std::vector<std::string>;
  run.batch = 38;
  EXPECT_EQ(chosen(run), (Names{"hidden.0.weight", "hidden.1.weight", "head.weight"}));
  run.batch = 40;
  EXPECT_EQ(chosen(run), (Names{"hidden.1.weight", "head.weight"}));
  run.batch = 48;
  EXPECT_EQ(chosen(run), (Names{"head.weight"}));
  run.batch = 82;
  EXPECT_EQ(chosen(run), Names{});
  TinyRun tied = with_factors(gpt_run());
  EXPECT_EQ(chosen(tied), (Names{"h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight",
                                 "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"}));
  tied.model.tied = false;
  EXPECT_THAT(chosen(tied), ::testing::Contains("lm_head.weight"));
}

void expect_refused(const TinyRun& run, const char* what, int ranks = 2) {
  SCOPED_TRACE(what);
  run_ranks(ranks, [&](const Job& job) {
    try {
      TinyRank rank(job, with_factors(run));
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(what));
      EXPECT_THAT(error.what(), HasSubstr("remove --factors"));
    }
  });
}

TEST(FactorMistakes, NameWhatFactorsCannotBeCombinedWith) {
  TinyRun run = mlp_run();
  run.replica.storage.stage = 2;
  expect_refused(run, "ZeRO stage 2");
  run = mlp_run();
  run.replica.sync = averages_every(4);
  expect_refused(run, "--sync local:4");
  run = mlp_run();
  run.powersgd = PowerSgdOptions{1};
  expect_refused(run, "compression");
  run = gpt_run();
  run.mesh.pipeline = 2;
  run.replica.pipeline.schedule = "chimera";
  run.model.tied = false;
  expect_refused(run, "the schedule chimera");
  const Deterministic deterministic;
  expect_refused(mlp_run(), "TUTTI_DETERMINISTIC=1");
}

}  // namespace
}  // namespace tutti::training
