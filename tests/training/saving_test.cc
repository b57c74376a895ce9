// Tests checkpoints that are written while training continues, and the best step of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/saved_tensors.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/step_directory.h"
#include "training/models/gpt.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using tutti::testing::run_ranks_catching;

struct Outcome {
  std::vector<StepReport> reports;
  TrainResult result;
};

class Saving : public FolderTest {
 protected:
  TrainOptions options_of(uint64_t steps, const std::string& directory) const {
    TrainOptions options;
    options.samples = 4 * steps;
    options.batch = 4;
    options.micro_batch = 1;
    options.schedule = {.decay = LearningRateSchedule::Decay::constant, .peak = 3e-3};
    options.replica.storage = {.stage = 1, .bucket_elements = 1 << 13};
    options.validation_samples = 10;
    options.checkpoint = path(directory);
    return options;
  }

  // Trains on two ranks. Returns each rank's error message. `outcome` receives the first rank's
  // outcome.
  static std::vector<std::string> train_catching(const TrainOptions& options,
                                                 Outcome* outcome = nullptr) {
    std::vector<std::string> said;
    for (const auto& error : run_ranks_catching(2, [&](const Job& job) {
           Gpt model(testing::tiny_gpt());
           const std::unique_ptr<DataSet> data = testing::tiny_data();
           Outcome own;
           own.result = train(Communicator::init(job), model, {data.get()}, options,
                              [&](const StepReport& report) { own.reports.push_back(report); });
           if (outcome != nullptr && job.rank == 0) *outcome = own;
         })) {
      said.emplace_back(error ? error->what() : "");
    }
    return said;
  }
  static Outcome trained(const TrainOptions& options) {
    Outcome outcome;
    EXPECT_THAT(train_catching(options, &outcome), Each(""));
    return outcome;
  }

  const testing::Deterministic deterministic_;
};

TEST_F(Saving, BackgroundSavesWriteTheSame) {
  TrainOptions options = options_of(7, "waiting");
  options.checkpoint_every = 2;
  options.keep = 0;
  const Outcome waiting = trained(options);
  options.checkpoint = path("background");
  options.async_checkpoint = true;
  const Outcome background = trained(options);

  EXPECT_EQ(steps_in(path("background")), (std::vector<int64_t>{2, 4, 6, 7}));
  EXPECT_EQ(background.result.checkpoints, 4);
  for (const int64_t step : steps_in(path("waiting"))) {
    const auto saved = [&](const char* run) {
      const Checkpoint checkpoint = Checkpoint::open(cat(path(run), '/', step_name(step)));
      checkpoint.verify();
      return testing::saved_tensors(checkpoint);
    };
    EXPECT_TRUE(saved("waiting") == saved("background")) << step;
  }
  ASSERT_THAT(background.reports, SizeIs(7));
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(background.reports[i].result.loss, waiting.reports[i].result.loss);
  }
  // The copy has everything that a rank owns: values and two moments, in f32, of half of the model.
  const MemoryReport& memory = background.reports.back().memory;
  EXPECT_EQ(waiting.reports.back().memory.copies, 0);
  EXPECT_NEAR(static_cast<double>(memory.copies),
              static_cast<double>(memory.optimizer + memory.storage.parameters / 2),
              0.02 * static_cast<double>(memory.copies));
}

TEST_F(Saving, AFailureInTheBackgroundIsReportedOnAllRanks) {
  TrainOptions options = options_of(8, "run");
  options.checkpoint_every = 2;
  options.async_checkpoint = true;
  // `latest` is a directory that is not empty, and cannot be replaced by the file.
  fs::create_directories(path("run/latest/in the way"));
  EXPECT_THAT(
      train_catching(options),
      Each(AllOf(HasSubstr("the checkpoint of step 2 was not saved"), HasSubstr("latest"))));
  fs::remove_all(path("run/latest"));
  options.resume = true;
  EXPECT_EQ(trained(options).result.resumed_at, 2u);
}

// The run is validated after each step. The reports name the step with the lowest loss.
TEST_F(Saving, TheBestStepStays) {
  TrainOptions options = options_of(6, "run");
  options.validate_every = 1;
  options.keep_best = true;
  options.keep = 1;
  for (const bool in_background : {false, true}) {
    SCOPED_TRACE(in_background);
    options.async_checkpoint = in_background;
    options.checkpoint = path(in_background ? "background" : "run");
    options.schedule.peak = 0.02;
    const Outcome outcome = trained(options);
    std::vector<double> losses;
    for (const StepReport& report : outcome.reports) {
      if (report.validation) losses.push_back(report.validation->loss);
    }
    losses.push_back(outcome.result.validation.loss);
    ASSERT_THAT(losses, SizeIs(6));
    const auto lowest = std::ranges::min_element(losses);
    const int64_t best = lowest - losses.begin() + 1;
    EXPECT_EQ(best_step(options.checkpoint), best);
    const Checkpoint saved = Checkpoint::open(options.checkpoint + "/best");
    EXPECT_EQ(saved.manifest().step, best);
    EXPECT_EQ(saved.manifest().state.at("validation_loss"), *lowest);
    const std::vector<int64_t> steps = steps_in(options.checkpoint);
    EXPECT_EQ(steps.back(), 6);
    EXPECT_EQ(steps.front(), best);
    EXPECT_LE(steps.size(), 2u);
  }
}

TEST_F(Saving, AResumedRunKnowsItsBest) {
  TrainOptions options = options_of(4, "run");
  options.validate_every = 1;
  options.keep_best = true;
  options.keep = 1;
  const Outcome before = trained(options);
  const std::optional<int64_t> best = best_step(path("run"));
  ASSERT_TRUE(best);
  // The learning rate is so high that the loss can only increase.
  options.resume = true;
  options.samples = 4 * 6;
  options.schedule.peak = 10;
  options.allow_changed = {"lr"};
  const Outcome after = trained(options);
  ASSERT_GT(after.result.validation.loss, before.result.validation.loss);
  EXPECT_EQ(best_step(path("run")), best);
  EXPECT_THAT(steps_in(path("run")), ElementsAre(*best, 6));
}

}  // namespace
}  // namespace tutti::training
