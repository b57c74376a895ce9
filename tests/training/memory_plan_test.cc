// Tests that the memory planned for a run equals the memory measured during the run.
#include "training/run/memory_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/convnet.h"
#include "training/models/gpt.h"
#include "training/models/llama.h"
#include "training/pipeline/profile.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;

void expect_as_planned(const MemoryReport& measured, const MemoryReport& planned) {
  EXPECT_EQ(planned.storage.parameters, measured.storage.parameters);
  EXPECT_EQ(planned.storage.gradients, measured.storage.gradients);
  EXPECT_EQ(planned.storage.masters, measured.storage.masters);
  EXPECT_EQ(planned.storage.padding, measured.storage.padding);
  EXPECT_EQ(planned.optimizer, measured.optimizer);
  EXPECT_NEAR(static_cast<double>(planned.activations), static_cast<double>(measured.activations),
              0.02 * static_cast<double>(measured.activations));
}

struct Case {
  int zero;
  DType dtype;
  bool recompute;
  uint64_t passes;
  int tensor = 1;
  bool sp = false;
  int64_t loss_chunk = 0;
  int stages = 1;
  const char* schedule = "1f1b";
  bool partition = false;
  int context = 1;
};

class MemoryPlans : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Layouts, MemoryPlans,
    ::testing::Values(Case{0, DType::f32, false, 1}, Case{0, DType::f32, true, 2},
                      Case{1, DType::bf16, false, 2}, Case{2, DType::bf16, true, 1},
                      Case{2, DType::f32, false, 2}, Case{3, DType::bf16, false, 1},
                      Case{3, DType::f32, true, 2}, Case{0, DType::f32, false, 2, 2},
                      Case{2, DType::bf16, true, 1, 2}, Case{0, DType::f32, false, 2, 2, true},
                      Case{1, DType::bf16, false, 2, 2, true, 5},
                      Case{3, DType::f32, true, 1, 2, true},
                      Case{0, DType::f32, false, 4, 1, false, 0, 2},
                      Case{1, DType::f32, true, 4, 2, true, 9, 2},
                      Case{0, DType::f32, false, 4, 1, false, 0, 2, "interleaved"},
                      Case{0, DType::f32, true, 2, 2, false, 0, 1, "1f1b", true},
                      Case{0, DType::bf16, true, 4, 2, false, 0, 2, "1f1b", true},
                      Case{0, DType::f32, false, 1, 1, false, 0, 1, "1f1b", false, 3},
                      Case{1, DType::bf16, false, 2, 2, true, 0, 1, "1f1b", false, 2},
                      Case{3, DType::f32, true, 4, 1, false, 0, 2, "1f1b", false, 2}));

TEST_P(MemoryPlans, PlansEqualTheRunsMemory) {
  const auto [stage, dtype, recompute, passes, tensor, sp, chunk, stages, schedule, partition,
              context] = GetParam();
  constexpr int kRanks = 2;
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  GptConfig config = testing::tiny_gpt();
  config.layers = 4;
  config.compute = {.sequence_parallel = sp, .loss_chunk = chunk};
  TrainOptions options;
  options.micro_batch = 4;
  options.batch = kRanks * options.micro_batch * passes;
  options.samples = 2 * options.batch;
  options.validation_samples = 8;
  options.replica.storage = {.stage = stage, .dtype = dtype, .bucket_elements = 1 << 13};
  options.replica.runner.checkpoint_units = recompute;
  options.replica.runner.partition_checkpoints = partition;

  options.replica.pipeline = {.schedule = schedule,
                              .virtual_stages = schedule == std::string("1f1b") ? 1 : 2};

  MemoryReport measured;
  run_ranks(kRanks * tensor * context * stages, [&](const Job& job) {
    const Mesh mesh(Communicator::init(job),
                    {.tensor = tensor, .context = context, .pipeline = stages});
    Gpt model(config, mesh.place());
    const TrainResult result = train(mesh, model, {data.get()}, options, [](const StepReport&) {});
    if (job.rank == 0) measured = result.memory;
  });

  const MeshPlace place{.sizes = {tensor, context, 1, 1, kRanks, stages}};
  Gpt model(config, place);
  Batch batch;
  for (uint64_t example = 0; example < options.micro_batch; ++example) data->add(example, 0, batch);
  if (context > 1) batch.deal_out(0, 0, context);
  const MicroBatch view = batch.view();
  const MemoryReport planned =
      MemoryPlan(model, view, options, static_cast<int64_t>(passes)).of(place);
  expect_as_planned(measured, planned);
  EXPECT_NEAR(static_cast<double>(total(planned)), static_cast<double>(total(measured)),
              (stage < 2 ? 0.02 : 0.05) * static_cast<double>(total(measured)));
}

TEST(SyncMemoryPlans, PlansEqualTheRunsMemory) {
  for (const char* way : {"local:2", "diloco:2", "gossip:ring", "gossip:exp", "gossip:complete",
                          "sgp", "easgd:2", "fedavg:2", "fedprox:2,0.1", "fedadam:2", "ps", "ssp:2",
                          "async", "ssp:2 by sgd", "allreduce by adamw8bit", "ps by adamw8bit",
                          "allreduce by adafactor", "ps by adafactor", "ps by soap"}) {
    const std::unique_ptr<DataSet> data = testing::tiny_data();
    TrainOptions options;
    options.micro_batch = 4;
    options.batch = 8;
    options.samples = 16;
    const std::string text = way;
    set_way(options.replica.sync, text.substr(0, text.find(' ')));
    for (const char* optimizer : {"adamw8bit", "adafactor", "soap"}) {
      if (text.ends_with(optimizer)) options.optimizer = {{"name", optimizer}};
    }
    if (text.ends_with("sgd")) options.optimizer = {{"name", "sgd"}, {"momentum", 0.0}};
    options.replica.sync.secure_sums = options.replica.sync.kind == SyncKind::fedprox;
    MemoryReport measured;
    run_ranks(2, [&](const Job& job) {
      const Mesh mesh(Communicator::init(job), {});
      Gpt model(testing::tiny_gpt(), mesh.place());
      const TrainResult result = train(mesh, model, {data.get()}, options, [](const auto&) {});
      if (job.rank == 0) measured = result.memory;
    });
    const MeshPlace place{.sizes = {1, 1, 1, 1, 2, 1}};
    Gpt model(testing::tiny_gpt(), place);
    Batch batch;
    for (uint64_t example = 0; example < 4; ++example) data->add(example, 0, batch);
    const MemoryReport planned = MemoryPlan(model, batch.view(), options, 1).of(place);
    EXPECT_EQ(planned.compression, measured.compression) << way;
    EXPECT_EQ(planned.storage.masters, measured.storage.masters) << way;
    EXPECT_EQ(planned.optimizer, measured.optimizer) << way;
  }
}

// Expects the planned memory to equal the measured memory. The layers of the run exchange parts of
// images, namely halos, and convert between layouts.
void expect_planned_images(const testing::TinyRun& run) {
  const std::unique_ptr<DataSet> data = testing::make_data(run);
  TrainOptions options;
  options.micro_batch = options.batch = 4;
  options.samples = 8;
  options.validation_samples = 8;
  const int ranks = static_cast<int>(run.mesh.of_a_sample());
  MemoryReport measured;
  run_ranks(ranks, [&](const Job& job) {
    const Mesh mesh(Communicator::init(job), run.mesh);
    const std::unique_ptr<Model> model = testing::make_model(run, nullptr, mesh.place());
    const TrainResult result = train(mesh, *model, {data.get()}, options, [](const auto&) {});
    if (job.rank == 0) measured = result.memory;
  });
  const MeshPlace place = mesh_place(run.mesh, ranks);
  const std::unique_ptr<Model> model = testing::make_model(run, nullptr, place);
  Batch batch;
  for (uint64_t example = 0; example < 4; ++example) data->add(example, 0, batch);
  const MemoryReport planned = MemoryPlan(*model, batch.view(), options, 1).of(place);
  expect_as_planned(measured, planned);
  EXPECT_EQ(planned.boundaries, measured.boundaries);
}

TEST(ImageMemoryPlans, PlansEqualTheRunsMemory) {
  for (const GridShape grid : {GridShape{1, 2}, {2, 2}, {3, 1}}) {
    SCOPED_TRACE(cat(grid.rows, " x ", grid.columns));
    testing::TinyRun run;
    run.mesh = {.data = 1, .spatial = grid};
    run.resnet = ResNetConfig{.height = 9, .width = 8, .classes = 3};
    expect_planned_images(run);
    run.resnet.reset();
    run.unet = UNetConfig{.height = 16, .width = 12, .widths = {4, 8}};
    expect_planned_images(run);
  }
  for (const Mix& mix : all_mixes(3, 2)) {
    SCOPED_TRACE(to_text(mix));
    testing::TinyRun run;
    run.mesh = {.tensor = 2, .data = 1};
    run.resnet = ResNetConfig{.height = 9, .width = 8, .classes = 3};  // as in the data set
    run.other_model = [&](const MeshPlace& place) {
      return std::make_unique<Convnet>(ConvnetConfig{.height = 9,
                                                     .width = 8,
                                                     .classes = 3,
                                                     .filters = {6, 8},
                                                     .widths = {},
                                                     .compute = {.mix = mix}},
                                       place);
    };
    expect_planned_images(run);
  }
}

// Every expert receives every token, because the plan assumes this number of rows. In deterministic
// mode, gradients of micro-batches and those of other ranks are accumulated separately.
TEST(ExpertMemoryPlans, PlansEqualTheRunsMemory) {
  for (const bool deterministic : {false, true}) {
    for (const uint64_t passes : {1, 4}) {
      for (const int stage : {0, 2}) {
        SCOPED_TRACE(cat("deterministic ", deterministic, ", passes ", passes, ", ZeRO ", stage));
        std::optional<testing::Deterministic> mode;
        if (deterministic) mode.emplace();
        const std::unique_ptr<DataSet> data = testing::tiny_data();
        const LlamaConfig config{.family = LlamaFamily::mixtral,
                                 .width = 32,
                                 .context = testing::kTinyContext,
                                 .router = {.experts = 4, .topk = 4},
                                 .shared_hidden = 16,
                                 .compute = {.slices = deterministic ? 8 : 1}};
        TrainOptions options;
        options.micro_batch = 4;
        options.batch = 4 * options.micro_batch * passes;
        options.samples = 2 * options.batch;
        options.validation_samples = 8;
        options.replica.storage.stage = stage;
        const MeshShape shape{.data = 4, .expert = 2};
        MemoryReport measured;
        run_ranks(4, [&](const Job& job) {
          const Mesh mesh(Communicator::init(job), shape);
          Llama model(config, mesh.place());
          const TrainResult result =
              train(mesh, model, {data.get()}, options, [](const StepReport&) {});
          if (job.rank == 0) measured = result.memory;
        });
        const MeshPlace place = mesh_place(shape, 4);
        Llama model(config, place);
        Batch batch;
        for (uint64_t i = 0; i < options.micro_batch; ++i) data->add(i, 0, batch);
        const MicroBatch view = batch.view();
        const MemoryReport planned =
            MemoryPlan(model, view, options, static_cast<int64_t>(passes)).of(place);
        expect_as_planned(measured, planned);
      }
    }
  }
}

// A block's bytes in the arena equal those of the formula that is printed beside Megatron-LM's.
TEST(BlockActivationsTest, EqualTheMeasuredActivationsOfABlock) {
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  for (const int tensor : {1, 2, 4}) {
    for (const bool sp : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        GptConfig config{.layers = 1,
                         .heads = 8,
                         .width = 256,
                         .context = testing::kTinyContext,
                         .vocabulary = 256,
                         .compute = {.sequence_parallel = sp}};
        Gpt model(config, {.sizes = {tensor, 1, 1, 1, 1, 1}});
        Batch batch;
        for (uint64_t example = 0; example < 16; ++example) data->add(example, 0, batch);
        const pipeline::Profile profile =
            pipeline::profile_model(model, batch.view(), {.dtype = dtype}, 1);
        const BlockActivations block = model.block_activations(16, dtype);
        const auto kept = static_cast<double>(profile.memory[1].kept);
        EXPECT_NEAR(kept, block.kept, 0.01 * kept);
        std::printf("tensor %d%s, %s: %.0f bytes, by formula %.0f; Megatron-LM %.0f in 16 bits\n",
                    tensor, sp ? ", shared rows" : "", std::string(name(dtype)).c_str(), kept,
                    block.kept, block.megatron);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::training
