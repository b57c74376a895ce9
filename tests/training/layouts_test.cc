// Tests that every layout trains the same model.
//
// Within a group of runs (number of ranks, micro-batches, type, dropout, optimizer) all layouts
// (ZeRO stage, buckets, recomputation, overlap, whole gradients or shards) must give the same
// losses, gradient norms, parameters and optimizer state, bit for bit, in deterministic mode. The
// runs cover each pair of values at least once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/llama.h"
#include "training/pipeline/schedules.h"

namespace tutti::training {
namespace {

using ::testing::Contains;
using testing::Deterministic;
using testing::Outcome;
using testing::TinyRun;

enum class Recompute { none, selective, full };

struct LayoutCase {
  int stage;
  Recompute recompute;
  bool tiny_buckets;  // a bucket for each parameter
  bool overlap;
  bool whole_gradients;
};

// Each ZeRO stage occurs with each kind of recomputation. Each of both also occurs with each value
// of the other options.
constexpr std::array kLayouts = {
    LayoutCase{0, Recompute::none, true, true, false},
    LayoutCase{0, Recompute::selective, false, false, true},
    LayoutCase{0, Recompute::full, true, false, true},
    LayoutCase{1, Recompute::none, false, false, true},
    LayoutCase{1, Recompute::selective, true, true, false},
    LayoutCase{1, Recompute::full, false, true, false},
    LayoutCase{2, Recompute::none, true, false, false},
    LayoutCase{2, Recompute::selective, false, true, true},
    LayoutCase{2, Recompute::full, true, true, true},
    LayoutCase{3, Recompute::none, false, true, true},
    LayoutCase{3, Recompute::selective, true, false, false},
    LayoutCase{3, Recompute::full, false, false, false},
};

struct Group {
  int ranks = 1;
  DType dtype = DType::f32;
  uint64_t batch = 1;  // a micro-batch has 1 sample
  std::string optimizer = "adamw";
  double dropout = 0;
  bool llama = false;  // trains a Llama instead of the GPT
};

std::string describe(const LayoutCase& layout) {
  return cat("stage ", layout.stage, ", recompute ", static_cast<int>(layout.recompute),
             layout.tiny_buckets ? ", tiny buckets" : "", layout.overlap ? ", overlap" : "",
             layout.whole_gradients ? ", whole gradients" : "");
}

std::string name_of(const Group& group) {
  return cat(group.ranks, "Ranks", name(group.dtype), "Batch", group.batch, group.optimizer,
             group.dropout > 0 ? "Dropout" : "", group.llama ? "Llama" : "");
}

// Replaces the model by a Llama with grouped queries, separate layers for queries, keys and values,
// and an embedding that is shared with the output layer.
void take_llama(TinyRun& run) {
  const GptConfig gpt = run.model;
  const LlamaConfig config{.layers = gpt.layers,
                           .heads = 4,
                           .kv_heads = 2,
                           .width = gpt.width,
                           .context = gpt.context,
                           .vocabulary = gpt.vocabulary,
                           .dropout = gpt.dropout,
                           .compute = gpt.compute};
  run.other_model = [config](const MeshPlace&) { return std::make_unique<Llama>(config); };
}

TinyRun plain_run(const Group& group) {
  TinyRun run;
  run.model.dropout = group.dropout;
  run.replica.storage.dtype = group.dtype;
  if (group.dtype == DType::f16) {
    // The loss scale overflows in the first steps and grows later, identically in all layouts.
    run.replica.loss_scaling = {.initial_scale = 0x1p24, .growth_interval = 6};
  }
  run.replica.clip = 1;
  run.optimizer = {{"name", group.optimizer}};
  if (group.optimizer == "lamb") run.learning_rate = 0.03;
  if (group.optimizer == "lars") run.learning_rate = 3;
  if (group.optimizer == "adafactor") run.learning_rate = 0.03;
  if (group.optimizer == "muon") run.learning_rate = 0.02;
  run.batch = group.batch;
  if (group.llama) take_llama(run);
  return run;
}

TinyRun run_of(const Group& group, const LayoutCase& layout) {
  TinyRun run = plain_run(group);
  run.model.compute.selective_recomputation = layout.recompute == Recompute::selective;
  run.replica.runner.checkpoint_units = layout.recompute == Recompute::full;
  StorageOptions& storage = run.replica.storage;
  storage.stage = layout.stage;
  // In 16-bit runs, whole gradients would be in f32, which rounds differently.
  run.whole_gradients = layout.whole_gradients && group.dtype == DType::f32;
  if (layout.tiny_buckets) storage.bucket_elements = storage.first_bucket_elements = 1;
  run.replica.data_parallel.overlap = layout.overlap;
  if (group.llama) take_llama(run);
  return run;
}

class Layouts : public ::testing::TestWithParam<Group> {
 private:
  Deterministic deterministic_;
};

TEST_P(Layouts, TrainTheSameBits) {
  const Outcome expected = testing::train(GetParam().ranks, plain_run(GetParam()));
  ASSERT_EQ(expected.losses.size(), 20u);
  EXPECT_LT(expected.losses.back(), 0.9 * expected.losses.front()) << "it learns";
  if (GetParam().dtype == DType::f16) {
    EXPECT_THAT(expected.norms, Contains(0)) << "overflows";
  }
  for (const LayoutCase& layout : kLayouts) {
    const Outcome outcome = testing::train(GetParam().ranks, run_of(GetParam(), layout));
    EXPECT_EQ(testing::difference(outcome, expected), "") << describe(layout);
  }
}

// The batches have as many micro-batches as there are ranks, twice as many, or other numbers.
INSTANTIATE_TEST_SUITE_P(
    Groups, Layouts,
    ::testing::Values(Group{1, DType::f32, 2}, Group{2, DType::f32, 2}, Group{2, DType::f32, 5},
                      Group{3, DType::f32, 5, "lamb"}, Group{4, DType::f32, 4},
                      Group{2, DType::bf16, 4, "lars"}, Group{3, DType::bf16, 3},
                      Group{4, DType::bf16, 8}, Group{3, DType::f16, 6},
                      Group{2, DType::f16, 5, "lamb"}, Group{3, DType::f32, 5, "muon"},
                      Group{2, DType::bf16, 4, "muon"}, Group{3, DType::f32, 5, "adamw8bit"},
                      Group{2, DType::bf16, 4, "adamw8bit"}, Group{3, DType::f32, 5, "adafactor"},
                      Group{3, DType::f32, 5, "soap"}, Group{4, DType::f32, 4, "lars", 0.1},
                      Group{2, DType::bf16, 2, "adamw", 0.1},
                      Group{2, DType::f32, 5, "adamw", 0.1, true},
                      Group{3, DType::f16, 5, "adamw", 0.1}),
    [](const auto& info) { return name_of(info.param); });

TEST(Ranks, ChangeOnlyRounding) {
  for (const double dropout : {0.0, 0.1}) {
    const Group group{.dtype = DType::f32, .batch = 5, .dropout = dropout};
    const Outcome alone = testing::train(1, plain_run(group));
    for (const int ranks : {2, 3, 4}) {
      const LayoutCase layout = kLayouts[static_cast<size_t>(3 * ranks) % kLayouts.size()];
      const Outcome shared = testing::train(ranks, run_of(group, layout));
      EXPECT_LT(testing::relative_difference(shared.losses, alone.losses), 1e-5) << ranks;
      EXPECT_LT(testing::relative_difference(shared.norms, alone.norms), 1e-4) << ranks;
    }
  }
}

// Outside deterministic mode, stages 2 and 3 reduce the gradients of each micro-batch over ranks.
// The order of these sums depends on the pipeline schedule.
TEST(Stages, TrainTheSameModelWhereShardsAreAddedUp) {
  for (const pipeline::ScheduleKind& kind : pipeline::all_schedules()) {
    if (kind.updates != pipeline::Updates::flushed) continue;
    for (const bool tied : {false, true}) {
      TinyRun run;
      run.model.layers = 4;
      run.model.tied = tied;
      run.mesh.pipeline = 2;
      run.replica.pipeline = {.schedule = std::string(kind.name),
                              .virtual_stages = kind.has_virtual_stages ? 2 : 1,
                              .cut = {}};
      run.replica.clip = 1;
      run.batch = 8;
      run.steps = 6;
      const Outcome expected = testing::train(4, run);
      for (const int stage : {2, 3}) {
        const bool several_hold_units = kind.name == "chimera";
        if (stage == 3 && several_hold_units) continue;
        SCOPED_TRACE(cat(kind.name, ", stage ", stage, tied ? ", tied" : ""));
        run.replica.storage.stage = stage;
        const Outcome sharded = testing::train(4, run);
        EXPECT_LT(testing::relative_difference(sharded.losses, expected.losses), 1e-5);
        EXPECT_LT(testing::relative_difference(sharded.norms, expected.norms), 1e-4);
      }
      run.replica.storage.stage = 0;
    }
  }
}

TEST(Seeds, DoMatter) {
  const Group group{.ranks = 1, .dtype = DType::f32, .batch = 2, .dropout = 0.1};
  const Outcome expected = testing::train(1, plain_run(group));
  EXPECT_TRUE(testing::train(1, plain_run(group)) == expected);
  TinyRun other = plain_run(group);
  other.replica.runner.seed = 2;  // seed of dropout
  EXPECT_EQ(testing::train(1, other).losses.size(), expected.losses.size());
  EXPECT_FALSE(testing::train(1, other) == expected);
  other = plain_run(group);
  other.replica.seed = 2;  // seed of the initial values
  EXPECT_FALSE(testing::train(1, other) == expected);
}

}  // namespace
}  // namespace tutti::training
