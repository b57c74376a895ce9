#include "tests/training/support/trained_run.h"

#include <memory>

#include "collectives/communicator.h"
#include "training/data/data_set.h"

namespace tutti::training::testing {

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

}  // namespace tutti::training::testing
