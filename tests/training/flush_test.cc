// Tests training with periodic flushes: at which steps they happen, which options cannot be
// combined with them, and runs resumed from a checkpoint at a flush.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/saved_tensors.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/models/gpt.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using testing::Deterministic;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

constexpr int kStages = 2;

// --- when flushes happen ---

TrainOptions flushing(uint64_t flush_every, uint64_t validate_every = 0,
                      uint64_t checkpoint_every = 0) {
  TrainOptions options;
  options.replica.pipeline.schedule = "pipedream";
  options.flush_every = flush_every;
  options.validate_every = validate_every;
  options.checkpoint_every = checkpoint_every;
  return options;
}

// Returns the steps that end with a flush.
std::vector<uint64_t> flushes(const TrainOptions& options, uint64_t steps, uint64_t first = 1) {
  std::vector<uint64_t> all;
  for (uint64_t step = first; step <= steps; step = all.back() + 1) {
    all.push_back(next_flush(options, step, steps));
    if (all.back() < step) break;  // otherwise the loop would not end
  }
  return all;
}

TEST(NextFlush, FlushesAtMultiplesAndAtTheEnd) {
  EXPECT_THAT(flushes(flushing(3), 8), ElementsAre(3, 6, 8));
  EXPECT_THAT(flushes(flushing(4), 8), ElementsAre(4, 8));
  EXPECT_THAT(flushes(flushing(1), 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(flushes(flushing(100), 8), ElementsAre(8));
  EXPECT_THAT(flushes(flushing(0), 8), ElementsAre(8)) << "0: at the end alone";
}

TEST(NextFlush, AlsoFlushesBeforeValidationAndCheckpoints) {
  EXPECT_THAT(flushes(flushing(4, 5), 12), ElementsAre(4, 5, 8, 10, 12));
  EXPECT_THAT(flushes(flushing(4, 0, 6), 12), ElementsAre(4, 6, 8, 12));
  EXPECT_THAT(flushes(flushing(0, 5, 7), 16), ElementsAre(5, 7, 10, 14, 15, 16));
}

// Steps are counted from the run's start, so that a resumed run has the same flushes.
TEST(NextFlush, DoesNotDependOnWhereARunResumes) {
  EXPECT_THAT(flushes(flushing(3), 8, 4), ElementsAre(6, 8));
  EXPECT_THAT(flushes(flushing(3), 8, 5), ElementsAre(6, 8));
}

TEST(NextFlush, OtherSchedulesFlushInEveryStep) {
  TrainOptions options = flushing(4);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "chimera"}) {
    options.replica.pipeline.schedule = schedule;
    EXPECT_THAT(flushes(options, 3), ElementsAre(1, 2, 3)) << schedule;
  }
}

// --- training ---

TrainOptions options_of(const std::string& schedule, uint64_t steps) {
  TrainOptions options;
  options.batch = 4;
  options.micro_batch = 1;
  options.samples = steps * options.batch;
  options.schedule = {.peak = 3e-3, .warmup_steps = 3};
  options.replica.pipeline.schedule = schedule;
  options.replica.storage.bucket_elements = 1 << 13;
  options.validation_samples = 10;
  options.flush_every = 4;
  return options;
}

struct Outcome {
  std::vector<uint64_t> steps;
  std::vector<double> losses;
  std::vector<uint64_t> validated;  // the steps with a validation
  double validation = 0;            // loss of the validation at the end
  uint64_t resumed_at = 0;
};

using OnStep = std::function<void(const StepReport&)>;

GptConfig untied() {
  GptConfig config = testing::tiny_gpt();
  config.tied = false;
  return config;
}

Outcome train_as_rank(const Job& job, const TrainOptions& options, const OnStep& on_step = {},
                      const GptConfig& config = untied()) {
  Gpt model(config);
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  Outcome outcome;
  const Mesh mesh(Communicator::init(job), {.pipeline = kStages});
  const TrainResult result =
      train(mesh, model, {data.get()}, options, [&](const StepReport& report) {
        outcome.steps.push_back(report.step);
        outcome.losses.push_back(report.result.loss);
        if (report.validation) outcome.validated.push_back(report.step);
        if (on_step) on_step(report);
      });
  outcome.validation = result.validation.loss;
  outcome.resumed_at = result.resumed_at;
  return outcome;
}

Outcome train_on(int ranks, const TrainOptions& options, const OnStep& on_step = {}) {
  Outcome first;
  run_ranks(ranks, [&](const Job& job) {
    const Outcome outcome = train_as_rank(job, options, on_step);
    if (job.rank == 0) first = outcome;
  });
  return first;
}

class Checkpoints : public FolderTest,
                    public ::testing::WithParamInterface<std::tuple<const char*, DType, int>> {
 protected:
  // Returns the tensors of the latest checkpoint.
  std::map<std::string, std::vector<float>> tensors(const std::string& directory) const {
    return testing::saved_tensors(Checkpoint::open(path(directory)));
  }

  const Deterministic deterministic_;
};

INSTANTIATE_TEST_SUITE_P(Schedules, Checkpoints,
                         ::testing::Values(std::tuple("pipedream", DType::f32, 0),
                                           std::tuple("pipedream", DType::bf16, 1),
                                           std::tuple("pipedream-2bw", DType::bf16, 0),
                                           std::tuple("pipedream-2bw", DType::f32, 2)));

TEST_P(Checkpoints, ARunResumedFromAFlushHasTheSameBits) {
  const auto [schedule, dtype, stage] = GetParam();
  TrainOptions options = options_of(schedule, 14);
  options.replica.storage.dtype = dtype;
  options.replica.storage.stage = stage;
  options.checkpoint_every = 6;  // not a multiple of flush_every
  options.checkpoint = path("whole");
  const Outcome whole = train_on(2 * kStages, options);
  ASSERT_EQ(whole.losses.size(), 14u);
  EXPECT_LT(whole.losses.back(), 0.95 * whole.losses.front()) << "it learns";

  options.checkpoint = path("cut");
  EXPECT_THROW(train_on(2 * kStages, options,
                        [](const StepReport& report) {
                          if (report.step == 10) throw Error(ErrorCode::system, "power cut");
                        }),
               Error);
  options.resume = true;
  const Outcome resumed = train_on(2 * kStages, options);
  EXPECT_EQ(resumed.resumed_at, 6u);
  EXPECT_THAT(resumed.steps, ElementsAre(7, 8, 9, 10, 11, 12, 13, 14));
  EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
  EXPECT_EQ(resumed.validation, whole.validation);
  EXPECT_TRUE(tensors("cut") == tensors("whole"));
}

TEST(Validation, ChangesNothingAtAFlush) {
  const Deterministic deterministic;
  TrainOptions options = options_of("pipedream", 9);
  const Outcome plain = train_on(kStages, options);
  options.validate_every = 4;
  const Outcome watched = train_on(kStages, options);
  EXPECT_THAT(watched.validated, ElementsAre(4, 8));
  EXPECT_EQ(watched.losses, plain.losses);
  EXPECT_EQ(watched.validation, plain.validation);
}

// --- refused options ---

// Expects `body` to be refused on at least one rank. Each rank checks by itself; the first rank
// that throws may abort the others before their check.
void expect_refused(int ranks, const std::function<void(const Job&)>& body, const std::string& what,
                    const std::string& remedy) {
  int found = 0;
  for (const std::optional<Error>& error : run_ranks_catching(ranks, body)) {
    ASSERT_TRUE(error) << what;
    if (error->code() == ErrorCode::aborted) continue;
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument) << error->what();
    EXPECT_THAT(error->what(), AllOf(HasSubstr(what), HasSubstr(remedy)));
    ++found;
  }
  EXPECT_GE(found, 1) << what;
}

class Refused : public ::testing::TestWithParam<const char*> {
 protected:
  void expect(const std::function<void(TrainOptions&, GptConfig&)>& change, const std::string& what,
              const std::string& remedy) const {
    TrainOptions options = options_of(GetParam(), 4);
    GptConfig config = untied();
    change(options, config);
    expect_refused(
        kStages, [&](const Job& job) { train_as_rank(job, options, {}, config); },
        cat("the schedule ", GetParam(), " does not support ", what), remedy);
  }
};

INSTANTIATE_TEST_SUITE_P(Schedules, Refused, ::testing::Values("pipedream", "pipedream-2bw"));

TEST_P(Refused, RefusesOptionsThatAllStagesWouldWaitFor) {
  expect([](TrainOptions&, GptConfig& config) { config.tied = true; }, "tied embeddings",
         "--untied");
  expect([](TrainOptions& options, GptConfig&) { options.replica.storage.stage = 3; },
         "ZeRO stage 3", "ZeRO stage 0, 1 or 2");
  expect([](TrainOptions& options, GptConfig&) { options.replica.clip = 1; }, "clipping", "--clip");
  expect(
      [](TrainOptions& options, GptConfig&) {
        options.replica.storage.dtype = DType::f16;
        options.replica.loss_scaling.emplace();
      },
      "loss scaling", "--loss-scale none");
}

TEST(TooFewMicroBatches, TwoBuffersRefuseTooFewMicroBatches) {
  expect_refused(
      4,
      [&](const Job& job) {
        Gpt model(untied());
        const std::unique_ptr<DataSet> data = testing::tiny_data();
        TrainOptions options = options_of("pipedream-2bw", 4);
        options.micro_batch = 2;  // 2 micro-batches per update, on 4 stages
        train(Mesh(Communicator::init(job), {.pipeline = 4}), model, {data.get()}, options,
              [](const StepReport&) {});
      },
      "requires updates of at least 3 micro-batches, not 2", "another schedule");
}

// --- non-finite values ---

// The first update makes weights that are far too large. The schedule's delay determines which step
// is the first to use them: step 2 with pipedream, and step 3 with two buffers.
TEST(NotFinite, NamesTheStep) {
  for (const auto& [schedule, step] :
       {std::pair("pipedream", "step 2: "), std::pair("pipedream-2bw", "step 3: ")}) {
    TrainOptions options = options_of(schedule, 8);
    options.optimizer = {{"name", "sgd"}};
    options.schedule = {.peak = 1e38, .warmup_steps = 0};
    for (const auto& error :
         run_ranks_catching(kStages, [&](const Job& job) { train_as_rank(job, options); })) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error->what(),
                  AllOf(HasSubstr(step), HasSubstr("not finite"), HasSubstr("learning rate")));
    }
  }
}

}  // namespace
}  // namespace tutti::training
