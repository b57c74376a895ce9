// Tests that training with offloaded state gives the same bits as with state in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"
#include "training/optimizers/registry.h"
#include "training/run/memory_plan.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TinyRun;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

class Offload : public FolderTest {
 protected:
  // The window is 1 MiB, which is several chunks.
  OffloadOptions files_of(const std::vector<std::string>& kinds) const {
    return {.kinds = kinds, .directory = path(""), .window = 1};
  }
  std::vector<std::string> kinds_of(int stage) const {
    if (stage == 3) return {"optimizer", "parameters", "activations"};
    return {"optimizer", "activations"};
  }
  // Expects training with these kinds of state in files to give the same bits as training in
  // memory.
  void expect_same_bits(int ranks, TinyRun run, const std::vector<std::string>& kinds) const {
    const Outcome expected = testing::train(ranks, run);
    run.replica.storage.offload = files_of(kinds);
    EXPECT_EQ(testing::difference(testing::train(ranks, run), expected), "");
    EXPECT_EQ(files(), 0U);
  }
};

TinyRun small_run(const std::string& optimizer) {
  TinyRun run;
  run.model.width = 64;
  run.model.layers = 3;
  run.replica.runner.checkpoint_units = true;
  run.replica.clip = 1;
  run.optimizer = {{"name", optimizer}};
  run.steps = 3;
  run.batch = 6;
  return run;
}

class OffloadedOptimizer : public Offload, public ::testing::WithParamInterface<std::string> {};

TEST_P(OffloadedOptimizer, TrainsTheSameBits) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(cat(ranks, " ranks, stage ", stage));
      TinyRun run = small_run(GetParam());
      run.replica.storage.stage = stage;
      // Stages 0 and 2 train with one micro-batch per rank, the other stages with several.
      if (stage % 2 == 0) run.micro_batch = run.batch / static_cast<uint64_t>(ranks);
      expect_same_bits(ranks, run, kinds_of(stage));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OffloadedOptimizer,
                         ::testing::Values("sgd", "adamw", "adamw8bit", "lamb", "lars", "muon",
                                           "adafactor", "soap"),
                         [](const auto& info) { return info.param; });

TEST_F(Offload, MixedPrecisionTrainsTheSameBits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(cat(name(dtype), ", stage ", stage));
      TinyRun run = small_run("adamw");
      run.replica.storage.stage = stage;
      run.replica.storage.dtype = dtype;
      if (dtype == DType::f16) run.replica.loss_scaling = {.initial_scale = 0x1p24};
      expect_same_bits(2, run, kinds_of(stage));
      run.micro_batch = 3;
      expect_same_bits(2, run, kinds_of(stage));
    }
  }
  TinyRun run = small_run("adamw");
  run.replica.storage.dtype = DType::bf16;
  run.replica.stochastic_rounding = true;
  run.replica.storage.stage = 3;
  expect_same_bits(2, run, kinds_of(3));
}

TEST_F(Offload, DeterministicModeTrainsTheSameBits) {
  const Deterministic deterministic;
  for (const int stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    TinyRun run = small_run("adamw");
    run.replica.storage.stage = stage;
    expect_same_bits(2, run, kinds_of(stage));
  }
}

TEST_F(Offload, PipelinesTrainTheSameBits) {
  for (const char* schedule : {"1f1b", "interleaved", "zb-h1"}) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(cat(schedule, ", stage ", stage));
      TinyRun run = small_run("adamw");
      run.model.layers = 4;
      run.mesh.pipeline = 2;
      run.replica.pipeline = {.schedule = schedule,
                              .virtual_stages = schedule == std::string("interleaved") ? 2 : 1};
      run.replica.storage.stage = stage;
      run.batch = 8;
      expect_same_bits(4, run, kinds_of(stage));
    }
  }
}

TEST_F(Offload, ThreadsTrainTheSameBits) {
  TinyRun run = small_run("adamw");
  run.replica.threads = 3;
  run.replica.storage.stage = 3;
  expect_same_bits(1, run, kinds_of(3));
}

class OffloadedRun : public Offload {
 protected:
  OffloadedRun() : data_(testing::tiny_data()) {
    config_.width = 64;
    options_.batch = 4;
    options_.micro_batch = 1;
    options_.samples = 4 * options_.batch;
    options_.validation_samples = 8;
    options_.replica.storage.stage = 3;
    options_.replica.runner.checkpoint_units = true;
    options_.replica.storage.offload = files_of(kinds_of(3));
  }

  TrainResult train_on(int ranks) const {
    TrainResult first;
    run_ranks(ranks, [&](const Job& job) {
      const Mesh mesh(Communicator::init(job), {});
      Gpt model(config_, mesh.place());
      const TrainResult result = train(mesh, model, {data_.get()}, options_, [](const auto&) {});
      if (job.rank == 0) first = result;
    });
    return first;
  }

  GptConfig config_ = testing::tiny_gpt();
  std::unique_ptr<DataSet> data_;
  TrainOptions options_;
};

TEST_F(OffloadedRun, IsResumedToTheSameBits) {
  const Deterministic deterministic;
  const auto resumed_loss = [&](const std::string& directory) {
    options_.checkpoint = path(directory);
    options_.resume = false;
    options_.samples = 2 * options_.batch;
    train_on(3);
    options_.samples = 4 * options_.batch;
    options_.resume = true;
    return train_on(2).validation.loss;
  };
  options_.replica.storage.offload = {};
  const double expected = resumed_loss("in memory");
  options_.replica.storage.offload = files_of(kinds_of(3));
  EXPECT_EQ(resumed_loss("offloaded"), expected);
  options_.async_checkpoint = true;
  EXPECT_EQ(resumed_loss("in the background"), expected);
}

TEST_F(OffloadedRun, TakesThePlannedMemory) {
  for (const char* optimizer : {"adamw", "adamw8bit", "soap"}) {
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(cat(optimizer, ", stage ", stage));
      options_.optimizer = {{"name", optimizer}};
      options_.replica.storage.stage = stage;
      options_.replica.storage.offload = files_of(kinds_of(stage));
      const MemoryReport measured = train_on(2).memory;
      const MeshPlace place{.sizes = {1, 1, 1, 1, 2, 1}};
      Gpt model(config_, place);
      Batch batch;
      data_->add(0, 0, batch);
      const MemoryReport planned = MemoryPlan(model, batch.view(), options_, 2).of(place);
      EXPECT_EQ(planned.storage.parameters, measured.storage.parameters);
      EXPECT_EQ(planned.storage.gradients, measured.storage.gradients);
      EXPECT_EQ(planned.storage.padding, measured.storage.padding);
      EXPECT_EQ(planned.optimizer, 0);
      EXPECT_EQ(measured.optimizer, 0);
      EXPECT_EQ(planned.files, measured.files);
      EXPECT_EQ(planned.pages, measured.pages);
      EXPECT_NEAR(static_cast<double>(planned.activations),
                  static_cast<double>(measured.activations),
                  0.02 * static_cast<double>(measured.activations));
    }
  }
}

TEST_F(OffloadedRun, IsRefusedWithOtherOptions) {
  const auto error_of = [&] {
    const auto errors = run_ranks_catching(1, [&](const Job& job) {
      const Mesh mesh(Communicator::init(job), {});
      Gpt model(config_, mesh.place());
      train(mesh, model, {data_.get()}, options_, [](const auto&) {});
    });
    return errors.front() ? std::string(errors.front()->what()) : "";
  };
  OffloadOptions& offload = options_.replica.storage.offload;
  offload.directory = path("nowhere");
  EXPECT_THAT(error_of(), HasSubstr("cannot create a file of"));
  offload.directory = "";
  EXPECT_THAT(error_of(), HasSubstr("requires a directory for its files"));
  offload = files_of({"weights"});
  EXPECT_THAT(error_of(), HasSubstr("unknown kind of state"));
  offload = files_of({"parameters"});
  options_.replica.storage.stage = 2;
  EXPECT_THAT(error_of(), HasSubstr("cannot be offloaded in ZeRO stage 2"));
}

}  // namespace
}  // namespace tutti::training
