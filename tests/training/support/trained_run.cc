#include "tests/training/support/trained_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "collectives/communicator.h"
#include "training/data/data_set.h"

namespace tutti::training::testing {

namespace {

bool says(const Error& error, ErrorCode code, const std::string& said) {
  return error.code() == code && std::string(error.what()).find(said) != std::string::npos;
}

}  // namespace

TrainOptions trained_options(uint64_t steps, int stage, DType dtype) {
  TrainOptions options;
  options.samples = steps * kTrainedBatch;
  options.batch = kTrainedBatch;
  options.micro_batch = 2;
  options.schedule = {.peak = 3e-3, .warmup_steps = 3};
  options.replica.storage = {.stage = stage, .dtype = dtype, .bucket_elements = 1 << 13};
  if (dtype == DType::f16) {
    options.replica.loss_scaling = {.initial_scale = 0x1p20, .growth_interval = 3};
  }
  options.replica.clip = 1;
  options.validation_samples = 10;
  return options;
}

TrainedRun train_as_rank(const Job& job, const TrainOptions& options, const OnStep& on_step,
                         const GptConfig& config) {
  Gpt model(config);
  const std::unique_ptr<DataSet> data = tiny_data();
  TrainedRun outcome;
  const TrainResult result =
      train(Communicator::init(job), model, {data.get()}, options, [&](const StepReport& report) {
        outcome.steps.push_back(report.step);
        outcome.losses.push_back(report.result.loss);
        if (on_step) on_step(report);
      });
  outcome.validation = result.validation.loss;
  outcome.resumed_at = result.resumed_at;
  return outcome;
}

TrainedRun train_on(int ranks, const TrainOptions& options) {
  std::vector<TrainedRun> outcomes(static_cast<size_t>(ranks));
  tutti::testing::run_ranks(ranks, [&](const Job& job) {
    outcomes[static_cast<size_t>(job.rank)] = train_as_rank(job, options);
  });
  EXPECT_THAT(outcomes, ::testing::Each(outcomes.front()));
  return outcomes.front();
}

void expect_refused_by_all(int ranks, const std::function<void(const Job&)>& body, ErrorCode code,
                           const std::string& said) {
  for (const std::optional<Error>& error : tutti::testing::run_ranks_catching(ranks, body)) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(says(*error, code, said)) << error->what();
  }
}

void expect_refused(const std::function<void(const Job&)>& body, const std::string& said) {
  int found = 0;
  for (const std::optional<Error>& error : tutti::testing::run_ranks_catching(2, body)) {
    ASSERT_TRUE(error);
    if (error->code() == ErrorCode::aborted) continue;
    EXPECT_TRUE(says(*error, ErrorCode::invalid_argument, said)) << error->what();
    ++found;
  }
  EXPECT_GE(found, 1) << said;
}

}  // namespace tutti::training::testing
