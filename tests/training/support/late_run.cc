#include "tests/training/support/late_run.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {

TrainOptions late_options(const std::string& way) {
  TrainOptions options;
  options.batch = 8;
  options.samples = kLateSteps * options.batch;
  options.micro_batch = 2;
  options.schedule = {.peak = 3e-3};
  options.flush_every = kLateFlush;
  options.validation_samples = 10;
  set_way(options.replica.sync, way);
  return options;
}

LateRun train_late(const Job& job, const TrainOptions& options, const MeshShape& worker,
                   const std::function<void(Replica&)>& before) {
  const Mesh mesh(Communicator::init(job), worker);
  Gpt model(tiny_gpt(), mesh.place());
  const std::unique_ptr<DataSet> data = tiny_data();
  Trainer trainer(mesh, model, {data.get()}, options);
  if (before) before(trainer.replica());
  LateRun run;
  while (const auto report = trainer.next()) run.losses.push_back(report->result.loss);
  run.result = trainer.finish();
  for (const OwnedPiece& piece : trainer.replica().owned()) {
    const auto values = piece.updated().values<float>();
    run.values.insert(run.values.end(), values.begin(), values.end());
  }
  return run;
}

std::vector<LateRun> train_late_on(int ranks, const TrainOptions& options,
                                   const MeshShape& worker) {
  std::vector<LateRun> runs(static_cast<size_t>(ranks));
  tutti::testing::run_ranks(ranks, [&](const Job& job) {
    runs[static_cast<size_t>(job.rank)] = train_late(job, options, worker);
  });
  for (const LateRun& rank : runs) {
    EXPECT_EQ(rank.losses, runs.front().losses);
    EXPECT_EQ(rank.result.validation.loss, runs.front().result.validation.loss);
    EXPECT_EQ(rank.result.digest, runs.front().result.digest) << "the ranks' values differ";
  }
  return runs;
}

std::string late_refusal(int ranks, const TrainOptions& options, const MeshShape& worker) {
  const auto errors = tutti::testing::run_ranks_catching(
      ranks, [&](const Job& job) { train_late(job, options, worker); });
  for (const std::optional<Error>& error : errors) EXPECT_TRUE(error);
  return errors.front() ? errors.front()->what() : "";
}

}  // namespace tutti::training::testing
