// Tests that any division of a model into pipeline stages trains the same model, bit for bit, in
// deterministic mode.
//
// A group of runs has the same data-parallel ranks, micro-batches, type, optimizer and model. All
// its pipelines (schedule, stages, cut, ZeRO stage, buckets, recomputation) must give the same
// losses, gradient norms, parameters and optimizer state as a run without a pipeline. The pipelines
// cover each schedule with each value of the other options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using ::testing::Contains;
using testing::Deterministic;
using testing::difference;
using ::testing::Each;
using ::testing::Gt;
using testing::Outcome;
using testing::TinyRun;

struct Pipe {
  std::string schedule;
  int stages = 2;
  int virtual_stages = 1;
  int zero = 0;
  bool recompute = false;
  bool tiny_buckets = false;  // a bucket for each parameter
  bool overlap = true;
  std::vector<int> cut = {};  // empty: units are divided by costs
};

// The model has 8 units.
const std::vector<Pipe>& pipes() {
  static const std::vector<Pipe> kPipes = {
      {.schedule = "gpipe", .stages = 2, .zero = 1, .cut = {0, 7}},
      {.schedule = "gpipe", .stages = 3, .recompute = true},
      {.schedule = "gpipe", .stages = 4, .zero = 1, .tiny_buckets = true, .cut = {0, 1, 2, 3}},
      {.schedule = "1f1b", .stages = 2, .recompute = true, .tiny_buckets = true},
      {.schedule = "1f1b", .stages = 2, .zero = 2, .cut = {0, 1}},
      {.schedule = "1f1b", .stages = 3, .zero = 1, .overlap = false},
      {.schedule = "1f1b", .stages = 4, .zero = 0, .cut = {0, 5, 6, 7}},
      {.schedule = "interleaved", .stages = 2, .virtual_stages = 2, .zero = 1},
      {.schedule = "interleaved", .stages = 2, .virtual_stages = 3, .recompute = true},
      {.schedule = "interleaved", .stages = 3, .virtual_stages = 2, .zero = 3},
      {.schedule = "interleaved", .stages = 4, .virtual_stages = 2, .overlap = false},
      {.schedule = "zb-h1", .stages = 2, .zero = 0, .cut = {0, 4}},
      {.schedule = "zb-h1", .stages = 2, .zero = 1, .recompute = true, .tiny_buckets = true},
      {.schedule = "zb-h1", .stages = 4, .zero = 2},
      {.schedule = "zb-h2", .stages = 2, .zero = 1, .tiny_buckets = true},
      {.schedule = "zb-h2", .stages = 2, .zero = 3, .recompute = true},
      {.schedule = "zb-h2", .stages = 3, .cut = {0, 1, 7}},
      {.schedule = "zb-h2", .stages = 4, .zero = 1},
  };
  return kPipes;
}

struct Group {
  int data = 1;  // number of data-parallel ranks
  DType dtype = DType::f32;
  uint64_t batch = 4;  // samples per step; a micro-batch has 1 sample
  uint64_t last_batch = 0;
  std::string optimizer = "adamw";
  bool tied = true;
  double dropout = 0;
  uint64_t micro_batch = 1;
};

std::string describe(const Pipe& pipe) {
  std::string text =
      cat(pipe.schedule, " of ", pipe.stages, " x ", pipe.virtual_stages, ", ZeRO ", pipe.zero,
          pipe.recompute ? ", recompute" : "", pipe.tiny_buckets ? ", tiny buckets" : "",
          pipe.overlap ? "" : ", no overlap");
  for (const int first : pipe.cut) text += cat(" ", first);
  return text;
}

std::string name_of(const Group& group) {
  return cat("Data", group.data, name(group.dtype), "Batch", group.batch, "By", group.micro_batch,
             group.optimizer, group.tied ? "Tied" : "Untied", group.dropout > 0 ? "Dropout" : "");
}

TinyRun plain_run(const Group& group) {
  TinyRun run;
  run.model = {.layers = 6, .heads = 2, .width = 16, .context = 8, .vocabulary = 128};
  run.model.tied = group.tied;
  run.model.dropout = group.dropout;
  if (!group.tied) {
    run.model.norm = NormKind::rms;
    run.model.mlp = MlpKind::swiglu;
    run.model.positions = Positions::rope;
  }
  run.replica.storage.dtype = group.dtype;
  if (group.dtype == DType::f16) {
    // The loss scale overflows in the first steps and grows later, identically in all pipelines.
    run.replica.loss_scaling = {.initial_scale = 0x1p22, .growth_interval = 2};
  }
  run.replica.stochastic_rounding = group.dtype == DType::bf16;
  run.replica.clip = 1;
  run.optimizer = {{"name", group.optimizer}};
  if (group.optimizer == "lamb") run.learning_rate = 0.03;
  if (group.optimizer == "lars") run.learning_rate = 3;
  if (group.optimizer == "adafactor") run.learning_rate = 0.03;
  if (group.optimizer == "muon") run.learning_rate = 0.02;
  run.batch = group.batch;
  run.micro_batch = group.micro_batch;
  run.last_batch = group.last_batch;
  run.steps = 5;
  run.validation_samples = 7;
  return run;
}

TinyRun run_of(const Group& group, const Pipe& pipe) {
  TinyRun run = plain_run(group);
  run.mesh.pipeline = pipe.stages;
  run.replica.pipeline = {
      .schedule = pipe.schedule, .virtual_stages = pipe.virtual_stages, .cut = pipe.cut};
  run.replica.storage.stage = pipe.zero;
  run.replica.runner.checkpoint_units = pipe.recompute;
  StorageOptions& storage = run.replica.storage;
  run.replica.data_parallel.overlap = pipe.overlap;
  if (pipe.tiny_buckets) storage.bucket_elements = storage.first_bucket_elements = 1;
  return run;
}

class Pipelines : public ::testing::TestWithParam<Group> {
 private:
  Deterministic deterministic_;
};

TEST_P(Pipelines, TrainTheSameBits) {
  constexpr int kMostRanks = 12;
  const Group& group = GetParam();
  const Outcome expected = testing::train(group.data, plain_run(group));
  ASSERT_EQ(expected.losses.size(), 5u);
  EXPECT_LT(expected.losses[4], expected.losses[0]) << "it learns";
  if (group.dtype == DType::f16) {
    EXPECT_THAT(expected.norms, Contains(0)) << "overflows";
    EXPECT_THAT(expected.norms, Contains(Gt(0)));
  } else {
    EXPECT_THAT(expected.norms, Each(Gt(0)));
  }
  for (const Pipe& pipe : pipes()) {
    const int ranks = group.data * pipe.stages;
    if (ranks > kMostRanks) continue;
    const Outcome outcome = testing::train(ranks, run_of(group, pipe));
    EXPECT_EQ(difference(outcome, expected), "") << describe(pipe);
  }
}

// In some groups, data-parallel ranks have unequal numbers of micro-batches, or none.
INSTANTIATE_TEST_SUITE_P(
    Groups, Pipelines,
    ::testing::Values(
        Group{.data = 1, .batch = 5, .last_batch = 2},
        Group{.data = 1, .dtype = DType::bf16, .tied = false, .dropout = 0.1},
        Group{.data = 2, .batch = 5, .last_batch = 1, .dropout = 0.1},
        Group{.data = 2, .dtype = DType::f16, .batch = 6},
        Group{.data = 2, .dtype = DType::bf16, .batch = 3, .optimizer = "lamb", .tied = false},
        Group{.data = 3, .batch = 2, .optimizer = "lars"},
        Group{.data = 2, .batch = 4, .optimizer = "muon"},
        Group{.data = 2, .batch = 3, .optimizer = "adamw8bit"},
        Group{.data = 2, .batch = 3, .optimizer = "adafactor"},
        Group{.data = 3,
              .dtype = DType::bf16,
              .batch = 11,
              .last_batch = 3,
              .dropout = 0.1,
              .micro_batch = 2},
        Group{.data = 3,
              .dtype = DType::f16,
              .batch = 4,
              .last_batch = 1,
              .optimizer = "sgd",
              .dropout = 0.1},
        Group{.data = 1,
              .dtype = DType::f16,
              .batch = 27,
              .last_batch = 4,
              .optimizer = "lamb",
              .micro_batch = 3},
        Group{.data = 5, .batch = 9, .last_batch = 4, .dropout = 0.1},
        Group{.data = 4, .batch = 6, .optimizer = "sgd", .tied = false}),
    [](const auto& info) { return name_of(info.param); });

// The ranks along the tensor axis compute the same here. Each sends a part of the tensors between
// stages, and sums over all ranks must count each value once.
TEST(TensorRanks, TensorRanksChangeNothing) {
  const Deterministic deterministic;
  for (const int data : {1, 2}) {
    const Group group{.data = data, .batch = 5, .last_batch = 1, .dropout = 0.1};
    const Outcome expected = testing::train(data, plain_run(group));
    for (const Pipe& pipe :
         {Pipe{.schedule = "1f1b", .stages = 1}, Pipe{.schedule = "1f1b", .stages = 1, .zero = 1},
          Pipe{.schedule = "1f1b", .stages = 2},
          Pipe{.schedule = "1f1b", .stages = 2, .zero = 1, .cut = {0, 1}},
          Pipe{.schedule = "interleaved", .stages = 2, .virtual_stages = 2, .zero = 3},
          Pipe{.schedule = "zb-h2", .stages = 3, .zero = 2}}) {
      TinyRun run = run_of(group, pipe);
      for (const int tensor : {2, 3}) {
        run.mesh.tensor = tensor;
        EXPECT_EQ(difference(testing::train(tensor * data * pipe.stages, run), expected), "")
            << data << " x " << tensor << " x " << describe(pipe);
      }
    }
  }
}

// Chimera adds the gradients of the two replicas of each stage, which changes the order of the sum.
TEST(Chimera, TrainsTheSameButForRounding) {
  const Deterministic deterministic;
  for (const int data : {1, 2}) {
    for (const bool tied : {true, false}) {
      const Group group{.data = data, .batch = 7, .last_batch = 3, .tied = tied};
      const Outcome expected = testing::train(data, plain_run(group));
      for (const Pipe& pipe :
           {Pipe{.schedule = "chimera", .stages = 2, .zero = 1},
            Pipe{.schedule = "chimera", .stages = 4, .cut = {0, 1, 2, 7}},
            Pipe{.schedule = "chimera",
            .stages = 4,
            .zero = 1,
            .recompute = true,
            .tiny_buckets = true},
            Pipe{.schedule = "chimera", .stages = 4, .zero = 2},
            Pipe{.schedule = "chimera", .stages = 4, .tiny_buckets = true, .overlap = false}}) {
        const Outcome outcome = testing::train(data * pipe.stages, run_of(group, pipe));
        EXPECT_LT(testing::relative_difference(outcome.losses, expected.losses), 1e-5)
            << describe(pipe);
        EXPECT_LT(testing::relative_difference(outcome.norms, expected.norms), 1e-4)
            << describe(pipe);
        EXPECT_NEAR(outcome.validation, expected.validation, 1e-5 * expected.validation)
            << describe(pipe);
      }
    }
  }
}

// This holds in any mode. If sums depended on a value's position in its bucket, which differs
// between the two stages, the stages' copies would differ, and train() would fail the test.
TEST(TiedEmbeddings, StayTheSameOnBothStages) {
  for (const int zero : {0, 1}) {
    TinyRun run = plain_run({.batch = 6});
    run.model = {.layers = 2, .heads = 2, .width = 64, .context = 8, .vocabulary = 9000};
    run.steps = 4;
    run.mesh = {.pipeline = 2};
    run.replica.storage.stage = zero;
    testing::train(6, run);
  }
}

}  // namespace
}  // namespace tutti::training
