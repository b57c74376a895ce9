// Tests training, from data to a checkpoint and back, on ranks that are threads.
#include "training/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "tests/training/support/tiny_run.h"
#include "tests/training/support/trained_run.h"
#include "training/models/gpt.h"

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using testing::expect_refused;
using testing::expect_refused_by_all;
using testing::relative_difference;
using ::testing::SizeIs;
using testing::train_as_rank;
using testing::train_on;
using testing::trained_options;
using testing::TrainedRun;
using tutti::testing::run_ranks;

// --- ranks ---

TEST(Trainer, EveryNumberOfRanksTrainsTheSameModel) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    TrainOptions options = trained_options(20);
    options.optimizer = {{"name", optimizer}};
    if (optimizer == "sgd") options.schedule.peak = 0.1;
    const TrainedRun alone = train_on(1, options);
    ASSERT_THAT(alone.losses, SizeIs(20));
    EXPECT_NEAR(alone.losses.front(), std::log(256), 0.1) << "nothing is known at first";
    EXPECT_LT(alone.losses.back(), 0.9 * alone.losses.front());
    EXPECT_LT(alone.validation, 0.9 * alone.losses.front());
    for (const int ranks : {2, 3, 4}) {
      const TrainedRun shared = train_on(ranks, options);
      EXPECT_LT(relative_difference(shared.losses, alone.losses), 1e-5) << ranks;
      EXPECT_NEAR(shared.validation, alone.validation, 1e-5 * alone.validation) << ranks;
    }
  }
}

TEST(Trainer, MoreRanksThanMicroBatches) {
  TrainOptions options = trained_options(5);
  options.batch = 3;
  options.samples = 13;  // the last step has only one sample
  const TrainedRun alone = train_on(1, options);
  EXPECT_THAT(alone.losses, SizeIs(5));
  EXPECT_LT(relative_difference(train_on(3, options).losses, alone.losses), 1e-5);
}

TEST(Trainer, SameSeedSameBitsAndAnotherSeedOthers) {
  TrainOptions options = trained_options(5);
  const TrainedRun first = train_on(2, options);
  EXPECT_EQ(train_on(2, options), first);
  options.seed = 2;
  EXPECT_NE(train_on(2, options), first);
}

TEST(Trainer, ValidatesAtTheRequestedSteps) {
  TrainOptions options = trained_options(5);
  options.validate_every = 2;
  std::vector<uint64_t> validated;
  run_ranks(1, [&](const Job& job) {
    train_as_rank(job, options, [&](const StepReport& report) {
      if (report.validation) validated.push_back(report.step);
    });
  });
  EXPECT_THAT(validated, ElementsAre(2, 4));
}

// --- errors ---

TEST(Trainer, DetectsRanksWithOtherOptions) {
  for (const auto change : std::vector<void (*)(TrainOptions&)>{
           [](TrainOptions& options) { options.seed = 7; },
           [](TrainOptions& options) { options.micro_batch = 1; },
           [](TrainOptions& options) { options.optimizer["beta2"] = 0.9; },
           [](TrainOptions& options) {
             options.configuration = {{"parallel", {{"mix", "b,m"}}}};
           },
           [](TrainOptions& options) { options.replica.clip.reset(); },
           [](TrainOptions& options) { options.schedule.peak += 1e-12; },
           [](TrainOptions& options) { options.replica.data_parallel.overlap = false; },
           [](TrainOptions& options) { options.replica.storage.stage = 1; }}) {
    expect_refused_by_all(
        3,
        [&](const Job& job) {
          TrainOptions options = trained_options(2);
          if (job.rank == 1) change(options);
          train_as_rank(job, options);
        },
        ErrorCode::mismatch, "the ranks do not train the same model");
  }
  expect_refused_by_all(
      3,
      [&](const Job& job) {
        TrainOptions options = trained_options(2);
        if (job.rank == 1) options.schedule.peak = 0.01;
        train_as_rank(job, options);
      },
      ErrorCode::mismatch, "has lr 0.01 (rank 0: 0.003)");
}

TEST(Trainer, DetectsRanksWithAnotherModelOrOtherData) {
  expect_refused_by_all(
      2,
      [&](const Job& job) {
        GptConfig config = testing::tiny_gpt();
        config.layers += job.rank;
        train_as_rank(job, trained_options(2), {}, config);
      },
      ErrorCode::mismatch, "their data or training options differ");
  expect_refused_by_all(
      2,
      [&](const Job& job) {
        Gpt model(testing::tiny_gpt());
        std::vector<uint8_t> bytes(1000, static_cast<uint8_t>('a' + job.rank));
        const TokenWindows data(Tokens(split_text(std::move(bytes))), testing::kTinyContext, 1);
        train(Communicator::init(job), model, {&data}, trained_options(2),
              [](const StepReport&) {});
      },
      ErrorCode::mismatch, "their data or training options differ");
}

TEST(Trainer, ADivergedLossIsAnErrorOfAllRanks) {
  TrainOptions options = trained_options(20);
  options.optimizer = {{"name", "sgd"}};
  options.schedule.peak = 1e30;
  options.replica.clip.reset();
  expect_refused_by_all(
      2, [&](const Job& job) { train_as_rank(job, options); }, ErrorCode::invalid_argument,
      "is not finite");
}

TEST(Trainer, NamesInvalidOptions) {
  const auto refused = [](auto change, const std::string& said) {
    TrainOptions options = trained_options(2);
    change(options);
    expect_refused([&](const Job& job) { train_as_rank(job, options); }, said);
  };
  refused([](TrainOptions& o) { o.batch = 0; }, "steps of 0 samples");
  refused([](TrainOptions& o) { o.micro_batch = 0; }, "micro-batches of 0");
  refused([](TrainOptions& o) { o.optimizer["beta1"] = 1; }, "beta1");
  refused([](TrainOptions& o) { o.replica.storage.stage = 4; }, "ZeRO stage 4");
  refused([](TrainOptions& o) { o.replica.storage.dtype = DType::i32; }, "i32");
  refused([](TrainOptions& o) { o.replica.storage.bucket_elements = 0; }, "buckets of 0 elements");
  refused([](TrainOptions& o) { o.data_weights = {1, 2}; }, "1 data sets were given");
  refused([](TrainOptions& o) { o.checkpoint_every = 2; },
          "no effect without a checkpoint directory");
  refused([](TrainOptions& o) { o.keep_best = true; }, "no effect without a checkpoint directory");
}

}  // namespace
}  // namespace tutti::training
