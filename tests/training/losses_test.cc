// Tests the minimized loss: the mean over all targets that are not ignored, plus losses of units.
// It does not depend on how a step is divided into micro-batches, over ranks and over stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/support/masked_data.h"
#include "tests/training/support/tiny_run.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using testing::difference;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

// --- ignored targets ---

// Returns the number of ignored targets: every third example ignores all 16, the others 0 to 15.
int64_t many(uint64_t example) {
  return example % 3 == 0 ? testing::kTinyContext : static_cast<int64_t>(example % 16);
}
int64_t all(uint64_t) { return testing::kTinyContext; }

TinyRun masked_run(testing::Ignored ignored) {
  TinyRun run;
  run.other_data = [=] { return std::make_unique<testing::MaskedData>(ignored); };
  run.batch = 6;
  run.micro_batch = 1;
  run.steps = 8;
  run.last_batch = 3;
  run.validation_samples = 20;
  return run;
}

TEST(IgnoredTargets, AnyCutOfAStepSkipsIgnoredTargets) {
  TinyRun run = masked_run(many);
  run.micro_batch = run.batch;
  const Outcome whole = testing::train(1, run);
  EXPECT_LT(whole.losses.back(), whole.losses.front()) << "it learns";
  for (const auto& [ranks, micro_batch] : {std::pair(1, 1), {2, 2}, {4, 1}, {5, 4}}) {
    SCOPED_TRACE(cat(ranks, " ranks, micro-batches of ", micro_batch));
    run.micro_batch = static_cast<uint64_t>(micro_batch);
    const Outcome cut = testing::train(ranks, run);
    EXPECT_LT(testing::relative_difference(cut.losses, whole.losses), 1e-5);
    EXPECT_LT(testing::relative_difference(cut.norms, whole.norms), 1e-4);
    EXPECT_NEAR(cut.validation, whole.validation, 1e-5);
  }
}

// The loss of a step is the mean of the losses of its micro-batches, weighted by their numbers of
// targets.
TEST(IgnoredTargets, TheLossIsTheMeanOverTheOtherTargets) {
  run_ranks(1, [](const Job& job) {
    TinyRun run = masked_run(many);
    TinyRank rank(job, run);
    const StepFeed step = rank.steps->next().value();
    double sum = 0;
    int64_t count = 0;
    for (const Batch& batch : step.own) {
      const MicroBatch one = batch.view();
      const Evaluation found = rank.replica.evaluate({&one, 1}, 1);
      EXPECT_EQ(found.targets, std::ranges::count_if(batch.targets, [](int t) { return t >= 0; }));
      sum += found.loss * static_cast<double>(found.targets);
      count += found.targets;
    }
    ASSERT_GT(count, 0);
    const StepResult result = TinyRank(job, run).step();
    EXPECT_EQ(result.targets, count);
    EXPECT_NEAR(result.loss, sum / static_cast<double>(count), 1e-12);
  });
}

TEST(IgnoredTargets, AllTargetsMayBeIgnored) {
  for (const bool scaled : {false, true}) {
    run_ranks(2, [&](const Job& job) {
      TinyRun run = masked_run(all);
      run.replica.storage.dtype = scaled ? DType::f16 : DType::f32;
      if (scaled) run.replica.loss_scaling.emplace();
      TinyRank rank(job, run);
      const StepResult result = rank.step();
      EXPECT_EQ(result.targets, 0);
      EXPECT_EQ(result.loss, 0);
      EXPECT_EQ(result.correct, 0);
      EXPECT_EQ(result.gradient_norm, 0);
      EXPECT_FALSE(result.skipped);
      EXPECT_EQ(rank.evaluate().loss, 0);
    });
  }
}

// --- losses of units ---

constexpr double kWeight = 1000;  // so large that these losses outweigh the loss of the targets

// A unit that adds the mean square of its output to the minimized loss.
class Penalized : public Unit {
 public:
  Penalized(std::unique_ptr<Unit> inner, bool declares)
      : inner_(std::move(inner)), declares_(declares) {}

  std::string name() const override { return inner_->name(); }
  OutputShape output_shape() const override { return inner_->output_shape(); }
  std::vector<std::string> losses() const override {
    return declares_ ? std::vector<std::string>{"penalty"} : std::vector<std::string>{};
  }
  Tensor forward(Pass& pass, ConstTensor input) override {
    const Tensor output = inner_->forward(pass, input);
    outputs_[pass.slot] = output;
    double sum = 0;
    for (const float value : output.values<float>()) sum += static_cast<double>(value) * value;
    pass.add_loss("penalty", sum / per_sample());
    return output;
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    const ConstTensor output = outputs_[pass.slot];
    const Tensor gradient = pass.arena.take(output.dtype, output.rows, output.cols);
    convert(output_gradient, gradient);
    const auto factor = static_cast<float>(kWeight * pass.sample_scale * 2 / per_sample());
    const auto values = output.values<float>();
    for (size_t i = 0; i < values.size(); ++i) gradient.values<float>()[i] += factor * values[i];
    return inner_->backward(pass, gradient);
  }

 private:
  double per_sample() const {
    return static_cast<double>(output_shape().rows * output_shape().cols);
  }

  std::unique_ptr<Unit> inner_;
  bool declares_;
  std::map<int, ConstTensor> outputs_;
};

// The units are embed, h.0, h.1, h.2 and head; h.0 and h.2 are penalized.
class PenalizedGpt : public Gpt {
 public:
  explicit PenalizedGpt(bool declares = true) : Gpt(config()) {
    for (const size_t unit : {1, 3}) {
      units_[unit] = std::make_unique<Penalized>(std::move(units_[unit]), declares);
    }
  }
  static GptConfig config() {
    GptConfig config = testing::tiny_gpt();
    config.layers = 3;
    config.tied = false;
    return config;
  }
};

TinyRun penalized_run() {
  TinyRun run;
  run.other_model = [](const MeshPlace&) { return std::make_unique<PenalizedGpt>(); };
  run.batch = 6;
  run.micro_batch = 1;
  run.steps = 6;
  run.last_batch = 5;
  return run;
}

TEST(NamedLosses, EveryPipelineReportsTheSameBits) {
  const Deterministic deterministic;
  for (const int data : {1, 2, 4}) {
    TinyRun run = penalized_run();
    const Outcome expected = testing::train(data, run);
    ASSERT_EQ(expected.named.at("penalty").size(), 6u);
    EXPECT_LT(expected.named.at("penalty").back(), expected.named.at("penalty").front());
    int zero = 0;
    for (const PipelineOptions& pipeline : {PipelineOptions{.schedule = "1f1b"},
                                            {.schedule = "zb-h2"},
                                            {.schedule = "gpipe"},
                                            {.schedule = "interleaved", .virtual_stages = 2}}) {
      run.mesh.pipeline = 2;
      run.replica.pipeline = pipeline;
      run.replica.storage.stage = zero++ % 4;
      run.replica.runner.checkpoint_units = zero % 2 == 0;
      EXPECT_EQ(difference(testing::train(2 * data, run), expected), "")
          << pipeline.schedule << " x " << data;
    }
  }
}

// Losses are summed in the same way, whichever ranks have the micro-batches.
TEST(Losses, AnyNumberOfRanksReportsTheSameBits) {
  const auto first_losses = [](int data, int stages) {
    TinyRun run = penalized_run();
    run.mesh = {.data = data, .pipeline = stages};
    run.steps = 1;
    const Outcome outcome = testing::train(data * stages, run);
    return std::tuple(outcome.losses, outcome.correct, outcome.named.at("penalty"));
  };
  const auto alone = first_losses(1, 1);
  for (const int data : {2, 3, 5, 6, 7}) EXPECT_EQ(first_losses(data, 1), alone) << data;
  for (const int data : {1, 2, 3}) EXPECT_EQ(first_losses(data, 2), alone) << data << " x 2";
}

TEST(NamedLosses, EachIsTheMeanOverTheSamplesOfTheStep) {
  TinyRun run = penalized_run();
  run.micro_batch = run.batch;
  const Outcome whole = testing::train(1, run);
  for (const auto& [ranks, micro_batch] : {std::pair(1, 1), {2, 2}, {4, 1}, {5, 4}}) {
    SCOPED_TRACE(cat(ranks, " ranks, micro-batches of ", micro_batch));
    run.micro_batch = static_cast<uint64_t>(micro_batch);
    const Outcome cut = testing::train(ranks, run);
    EXPECT_LT(testing::relative_difference(cut.losses, whole.losses), 1e-5);
    EXPECT_LT(testing::relative_difference(cut.norms, whole.norms), 1e-4);
    EXPECT_LT(testing::relative_difference(cut.named.at("penalty"), whole.named.at("penalty")),
              1e-5);
  }
}

TEST(NamedLosses, PipeDreamReportsThemToo) {
  TinyRun run = penalized_run();
  const Outcome flushed = testing::train(1, run);
  run.mesh.pipeline = 2;
  run.replica.pipeline.schedule = "pipedream";
  run_ranks(2, [&](const Job& job) {
    TinyRank rank(job, run);
    const StepFeed feed = rank.steps->next().value();
    std::vector<MicroBatch> own;
    for (const Batch& batch : feed.own) own.push_back(batch.view());
    const StepBatches step{.own = own, .passes = static_cast<int64_t>(feed.passes)};
    const std::vector<StepResult> results =
        rank.replica.run({&step, 1}, 1, {&run.learning_rate, 1});
    EXPECT_NEAR(results.at(0).losses.at("penalty"), flushed.named.at("penalty")[0], 1e-6);
    EXPECT_NEAR(results.at(0).loss, flushed.losses[0], 1e-6);
  });
}

TEST(NamedLosses, MustBeDeclared) {
  TinyRun run = penalized_run();
  run.other_model = [](const MeshPlace&) { return std::make_unique<PenalizedGpt>(false); };
  const auto errors = run_ranks_catching(1, [&](const Job& job) { TinyRank(job, run).step(); });
  ASSERT_TRUE(errors[0]);
  EXPECT_THAT(errors[0]->what(), HasSubstr("the unit h.0 added the undeclared loss penalty"));
}

// --- ranks without samples ---

TEST(MicroBatches, EveryRankNeedsMicroBatches) {
  const auto errors = run_ranks_catching(2, [&](const Job& job) {
    TinyRank rank(job, TinyRun{});
    const StepFeed feed = rank.steps->next().value();
    const MicroBatch batch = feed.own.front().view();
    rank.replica.step({.own = {&batch, job.rank == 0 ? 1u : 0u}}, 1, 1e-3);
  });
  for (const auto& error : errors) ASSERT_TRUE(error);
  EXPECT_THAT(errors[1]->what(), HasSubstr("a rank has no micro-batch"));
}

}  // namespace
}  // namespace tutti::training
