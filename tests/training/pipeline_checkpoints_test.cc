// Tests that checkpoints do not depend on the division of the model: a run on any mesh of ranks can
// resume the checkpoint of any other.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/saved_tensors.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/initial.h"
#include "training/language/model_source.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;

struct Place {
  int data = 1;
  int stages = 1;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  int zero = 0;
  std::vector<int> cut = {};  // empty: units are divided by costs
  int tensor = 1;

  int ranks() const { return data * stages * tensor; }
};

std::string describe(const Place& place) {
  return cat(place.data, " x ", place.stages, " x ", place.tensor, ", ", place.schedule, " x ",
             place.virtual_stages, ", ZeRO ", place.zero);
}

// The model has 8 units. Only the last one has no dropout and no running statistics.
TinyRun gpt_run(bool tied, DType dtype) {
  TinyRun run;
  run.model = {.layers = 6, .heads = 2, .width = 16, .context = 8, .vocabulary = 128};
  run.model.tied = tied;
  run.model.dropout = 0.1;
  run.replica.storage.dtype = dtype;
  if (dtype == DType::f16) {
    run.replica.loss_scaling = {.initial_scale = 0x1p18, .growth_interval = 2};
  }
  return run;
}

TinyRun image_run() {
  TinyRun run;
  run.resnet = ResNetConfig{
      .channels = 1, .height = 6, .width = 5, .classes = 3, .blocks = {3, 3}, .widths = {4, 6}};
  run.optimizer = {{"name", "sgd"}};
  run.learning_rate = 0.05;
  run.micro_batch = 2;
  return run;
}

TinyRun at(const Place& place, TinyRun run) {
  run.mesh = {.tensor = place.tensor, .data = place.data, .pipeline = place.stages};
  run.replica.pipeline = {
      .schedule = place.schedule, .virtual_stages = place.virtual_stages, .cut = place.cut};
  run.replica.storage.stage = place.zero;
  run.replica.clip = 1;
  run.batch = 10;
  run.validation_samples = 12;
  return run;
}

class PipelineCheckpoints : public FolderTest {
 protected:
  static constexpr int64_t kSavedAt = 3;

  // Results after the checkpoint.
  struct Next {
    double validation = 0;
    std::vector<double> losses;  // losses of the next steps
    std::vector<double> norms;
  };
  static Next proceed(TinyRank& rank) {
    Next next{.validation = rank.evaluate().loss};
    for (int step = 0; step < 3; ++step) {
      const StepResult result = rank.step();
      next.losses.push_back(result.loss);
      next.norms.push_back(result.skipped ? 0 : result.gradient_norm);
    }
    return next;
  }

  static void save_in(const std::string& directory, TinyRank& rank, const Job& job) {
    std::optional<RunDirectory> run;
    if (job.rank == 0) run.emplace(directory, RunStart{});
    save_snapshot(rank.replica, *rank.model,
                  {.directory = run ? &*run : nullptr,
                   .step = kSavedAt,
                   .configuration = {},
                   .state = {{"mark", 7}},
                   .keep = 1});
  }

  Next save(const TinyRun& run, const Place& place, const std::string& directory) const {
    Next next;
    run_ranks(place.ranks(), [&](const Job& job) {
      TinyRank rank(job, at(place, run));
      while (rank.done < kSavedAt) rank.step();
      save_in(path(directory), rank, job);
      const Next own = proceed(rank);
      if (job.rank == 0) next = own;
    });
    return next;
  }

  // Loads a checkpoint from `from`, saves it again in `again`, and continues to train.
  Next load(const TinyRun& run, const Place& place, const std::string& from,
            const std::string& again) const {
    Next next;
    run_ranks(place.ranks(), [&](const Job& job) {
      TinyRank rank(job, at(place, run));
      const Json state = load_snapshot(rank.replica, *rank.model, Checkpoint::open(path(from)));
      EXPECT_EQ(state["step"], kSavedAt);
      save_in(path(again), rank, job);
      rank.skip(kSavedAt);
      const Next own = proceed(rank);
      if (job.rank == 0) next = own;
    });
    return next;
  }

  struct Saved {
    std::map<std::string, std::vector<float>> tensors;
    Json state;
    bool operator==(const Saved&) const = default;
  };
  Saved saved(const std::string& directory) const {
    const Checkpoint checkpoint = Checkpoint::open(path(directory));
    return {testing::saved_tensors(checkpoint), checkpoint.manifest().state};
  }

  void expect_all_go_on_with(const TinyRun& run, const Place& from) {
    const std::string name = cat("saved-", count_++);
    const Next expected = save(run, from, name);
    const Saved original = saved(name);
    for (const Place& to : kPlaces) {
      SCOPED_TRACE(cat("from ", describe(from), " to ", describe(to)));
      const std::string again = cat("again-", count_++);
      const Next found = load(run, to, name, again);
      EXPECT_TRUE(saved(again) == original) << "not a bit is lost";
      if (to.data == from.data) {
        EXPECT_EQ(found.losses, expected.losses);
        EXPECT_EQ(found.norms, expected.norms);
        EXPECT_EQ(found.validation, expected.validation);
      } else {
        // The first loss is a sum of the same numbers, in double precision but in another order.
        EXPECT_NEAR(found.losses[0], expected.losses[0], 1e-14 * expected.losses[0]);
        EXPECT_NEAR(found.validation, expected.validation, 1e-14 * expected.validation);
        const double rounding = run.replica.storage.dtype == DType::f32 ? 1e-6 : 2e-2;
        EXPECT_LT(testing::relative_difference(found.losses, expected.losses), rounding);
      }
    }
  }

 private:
  const std::vector<Place> kPlaces = {
      {.data = 1},
      {.data = 2, .zero = 2},
      {.data = 4, .zero = 1},
      {.data = 1, .stages = 4, .schedule = "gpipe"},
      {.data = 1, .stages = 4, .schedule = "zb-h2", .zero = 1},
      {.data = 2, .stages = 2, .schedule = "interleaved", .virtual_stages = 2},
      {.data = 2, .stages = 4, .schedule = "zb-h1", .zero = 1, .cut = {0, 1, 2, 7}},
      {.data = 2, .stages = 2, .zero = 3, .cut = {0, 7}},
      {.data = 2, .stages = 2, .zero = 1, .tensor = 2},
      {.data = 3, .stages = 2, .zero = 1},
  };
  int count_ = 0;
  Deterministic deterministic_;
};

TEST_F(PipelineCheckpoints, GptCheckpointsLoadAnywhere) {
  const TinyRun run = gpt_run(true, DType::f32);
  expect_all_go_on_with(run, {.data = 2, .stages = 2});
  expect_all_go_on_with(run, {.data = 2, .stages = 2, .zero = 1});
  expect_all_go_on_with(run, {.data = 2, .stages = 2, .tensor = 2});
  expect_all_go_on_with(run, {.data = 2});
}

TEST_F(PipelineCheckpoints, OtherTypesLoadAnywhere) {
  expect_all_go_on_with(gpt_run(true, DType::bf16), {.data = 2, .stages = 2, .zero = 1});
  expect_all_go_on_with(gpt_run(false, DType::f16),
                        {.data = 2, .stages = 2, .schedule = "zb-h1", .zero = 2});
}

TEST_F(PipelineCheckpoints, ResNetCheckpointsHaveTheRunningStatisticsOfAllStages) {
  for (const int zero : {0, 1}) {
    expect_all_go_on_with(image_run(), {.data = 2, .stages = 2, .zero = zero});
  }
}

TEST_F(PipelineCheckpoints, HaveATiedEmbeddingOnce) {
  for (const int zero : {0, 1}) {
    const std::string name = cat("zero-", zero);
    save(gpt_run(true, DType::f32), {.data = 2, .stages = 2, .zero = zero}, name);
    const Checkpoint checkpoint = Checkpoint::open(path(name));
    ASSERT_TRUE(checkpoint.has("model.wte.weight"));
    EXPECT_FALSE(checkpoint.has("model.lm_head.weight"));
    // The embedding is saved by stage 0, which is ranks 0 and 1. Its copies on the last stage are
    // not saved.
    for (const TensorEntry& tensor : checkpoint.manifest().tensors) {
      if (!tensor.info.name.ends_with("wte.weight")) continue;
      ASSERT_EQ(tensor.slices.size(), 1);
      for (const StoredPiece& piece : tensor.slices.front().pieces) {
        EXPECT_LT(piece.file, 2) << tensor.info.name;
      }
    }
  }
}

// An exported model also contains state other than parameters.
TEST_F(PipelineCheckpoints, ExportsHaveRunningStatistics) {
  const Deterministic deterministic;
  const Next expected = save(image_run(), {.data = 1}, "saved");
  export_safetensors(Checkpoint::open(path("saved")), path("half.safetensors"), DType::bf16);
  export_safetensors(Checkpoint::open(path("saved")), path("model.safetensors"));
  const SafetensorsFile half(path("half.safetensors"));
  int buffers = 0;
  for (const StoredTensor& tensor : half.tensors()) {
    const bool is_buffer = tensor.info.name.find(".running_") != std::string::npos;
    EXPECT_EQ(tensor.info.dtype, is_buffer ? DType::f32 : DType::bf16) << tensor.info.name;
    buffers += is_buffer ? 1 : 0;
  }
  EXPECT_GT(buffers, 10);
  for (const Place& to : {Place{.data = 1}, Place{.data = 1, .stages = 2}}) {
    for (const std::string& from : {path("model.safetensors"), path("saved")}) {
      run_ranks(to.ranks(), [&](const Job& job) {
        TinyRank rank(job, at(to, image_run()));
        const ModelSource source = open_model(from);
        check_initial(*rank.model, *source.values, from);
        load_parameters(rank.replica, *source.values, from);
        EXPECT_EQ(rank.evaluate().loss, expected.validation) << from << ' ' << describe(to);
      });
    }
  }
}

}  // namespace
}  // namespace tutti::training
