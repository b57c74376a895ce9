// Tests pipelines of models other than GPT: any division gives the same bits as a run without a
// pipeline.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using testing::difference;
using testing::Outcome;
using testing::TinyRun;

// Returns pipelines of `units` units, with every schedule.
std::vector<PipelineOptions> pipelines(int stages, int units) {
  std::vector<PipelineOptions> all;
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    all.push_back({.schedule = schedule});
  }
  // Cuts in which all stages except the last, or all except the first, have one unit.
  std::vector<int> front, back = {0};
  for (int stage = 0; stage < stages; ++stage) front.push_back(stage);
  for (int stage = 1; stage < stages; ++stage) back.push_back(units - stages + stage);
  all.push_back({.schedule = "1f1b", .cut = front});
  all.push_back({.schedule = "zb-h2", .cut = back});
  for (int v = 2; v * stages <= units; ++v) {
    all.push_back({.schedule = "interleaved", .virtual_stages = v});
  }
  return all;
}

void expect_the_same_bits(TinyRun run, int data, const std::vector<int>& stages) {
  const Deterministic deterministic;
  const Outcome expected = testing::train(data, run);
  EXPECT_LT(expected.losses.back(), expected.losses.front()) << "it learns";
  const int units = static_cast<int>(make_model(run)->units().size());
  int zero = 0;
  for (const int p : stages) {
    for (const PipelineOptions& pipeline : pipelines(p, units)) {
      run.mesh.pipeline = p;
      run.replica.pipeline = pipeline;
      run.replica.storage.stage = zero++ % 4;
      run.replica.runner.checkpoint_units = zero % 3 == 0;
      EXPECT_EQ(difference(testing::train(data * p, run), expected), "")
          << data << " x " << p << ", " << pipeline.schedule << " x " << pipeline.virtual_stages
          << ", ZeRO " << run.replica.storage.stage;
    }
  }
}

TEST(MlpPipelines, TrainTheSameBits) {
  TinyRun run;
  run.mlp = MlpModelConfig{.context = 4, .embedding = 8, .hidden = 24, .layers = 4};
  run.batch = 22;
  run.micro_batch = 4;
  run.steps = 6;
  run.last_batch = 5;
  run.validation_samples = 50;
  expect_the_same_bits(run, 1, {2, 6});
  expect_the_same_bits(run, 2, {2, 3});
  expect_the_same_bits(run, 4, {2});
  run.replica.storage.dtype = DType::bf16;
  run.optimizer = {{"name", "lamb"}};
  expect_the_same_bits(run, 3, {2, 3});
}

// The model has 5 units; all except the last have running statistics.
TinyRun image_run() {
  TinyRun run;
  run.resnet = ResNetConfig{
      .channels = 2, .height = 6, .width = 5, .classes = 3, .blocks = {1, 2}, .widths = {4, 6}};
  run.optimizer = {{"name", "sgd"}};
  run.learning_rate = 0.05;
  run.batch = 24;
  run.micro_batch = 4;
  run.steps = 6;
  run.validation_samples = 30;
  return run;
}

TEST(ResNetPipelines, TrainTheSameBits) {
  TinyRun run = image_run();
  run.last_batch = 7;
  expect_the_same_bits(run, 1, {2, 5});
  expect_the_same_bits(run, 2, {2, 4});
  run.optimizer = {{"name", "lars"}};
  run.learning_rate = 1;
  expect_the_same_bits(run, 3, {2, 3});
}

// Statistics are computed over the data-parallel ranks of each stage.
TEST(ResNetPipelines, StatisticsOverRanksTrainTheSameBits) {
  TinyRun run = image_run();
  run.sync_batch_norm = true;
  expect_the_same_bits(run, 2, {2, 4});
  // Two micro-batches, of which the second is smaller, so that some ranks have none.
  run.last_batch = 7;
  expect_the_same_bits(run, 3, {2});
}

// A rank without a micro-batch takes part in the statistics with weight 0.
TEST(SyncBatchNorm, UnevenRanksMatchTheWholeBatch) {
  TinyRun run = image_run();
  run.batch = run.micro_batch = 8;
  run.last_batch = 6;
  run.sync_batch_norm = true;
  const Outcome whole = testing::train(1, run);
  for (const auto& [ranks, micro_batch] : {std::pair(2, 5), {3, 4}, {4, 3}, {5, 2}}) {
    SCOPED_TRACE(cat(ranks, " ranks, micro-batches of ", micro_batch));
    run.micro_batch = static_cast<uint64_t>(micro_batch);
    const Outcome found = testing::train(ranks, run);
    EXPECT_LT(testing::relative_difference(found.losses, whole.losses), 1e-5);
    EXPECT_LT(testing::relative_difference(found.norms, whole.norms), 1e-4);
    EXPECT_NEAR(found.validation, whole.validation, 1e-4);
    for (size_t i = 0; i < whole.buffers.size(); ++i) {
      for (size_t c = 0; c < whole.buffers[i].size(); ++c) {
        EXPECT_NEAR(found.buffers[i][c], whole.buffers[i][c], 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::training
