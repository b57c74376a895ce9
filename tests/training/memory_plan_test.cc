// What is planned before a run is what is measured in it.
#include "training/run/memory_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "tests/support/ranks.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"

namespace tutti::training {
namespace {

using tutti::testing::run_ranks;

class MemoryPlan : public ::testing::TestWithParam<std::tuple<int, DType, bool, uint64_t, int>> {};

INSTANTIATE_TEST_SUITE_P(Layouts, MemoryPlan,
                         ::testing::Values(std::tuple(0, DType::f32, false, 1, 1),
                                           std::tuple(0, DType::f32, true, 2, 1),
                                           std::tuple(1, DType::bf16, false, 2, 1),
                                           std::tuple(2, DType::bf16, true, 1, 1),
                                           std::tuple(2, DType::f32, false, 2, 1),
                                           std::tuple(3, DType::bf16, false, 1, 1),
                                           std::tuple(3, DType::f32, true, 2, 1),
                                           std::tuple(0, DType::f32, false, 2, 2),
                                           std::tuple(2, DType::bf16, true, 1, 2)));

TEST_P(MemoryPlan, IsWhatARunTakes) {
  const auto [stage, dtype, recompute, passes, tensor] = GetParam();
  constexpr int kRanks = 2;
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  GptConfig config = testing::tiny_gpt();
  config.layers = 4;
  TrainOptions options;
  options.micro_batch = 4;
  options.batch = kRanks * options.micro_batch * passes;
  options.samples = 2 * options.batch;
  options.validation_samples = 8;
  options.replica.storage = {.stage = stage, .dtype = dtype, .bucket_elements = 1 << 13};
  options.replica.runner.checkpoint_units = recompute;

  MemoryReport measured;
  run_ranks(kRanks * tensor, [&](const Job& job) {
    const Mesh mesh(Communicator::init(job), {.tensor = tensor});
    Gpt model(config, mesh.place());
    const TrainResult result = train(mesh, model, {data.get()}, options, [](const StepReport&) {});
    if (job.rank == 0) measured = result.memory;
  });

  Gpt model(config, {.sizes = {tensor, 1, 1, kRanks, 1}});
  Batch batch;
  for (uint64_t example = 0; example < options.micro_batch; ++example) data->add(example, 0, batch);
  const MemoryReport planned =
      planned_memory(model, batch.view(), options, kRanks, static_cast<int64_t>(passes));
  EXPECT_EQ(planned.storage.parameters, measured.storage.parameters);
  EXPECT_EQ(planned.storage.gradients, measured.storage.gradients);
  EXPECT_EQ(planned.storage.masters, measured.storage.masters);
  EXPECT_EQ(planned.storage.padding, measured.storage.padding);
  EXPECT_EQ(planned.optimizer, measured.optimizer);
  EXPECT_NEAR(static_cast<double>(planned.activations), static_cast<double>(measured.activations),
              0.02 * static_cast<double>(measured.activations));
  EXPECT_NEAR(static_cast<double>(total(planned)), static_cast<double>(total(measured)),
              (stage < 2 ? 0.02 : 0.05) * static_cast<double>(total(measured)));
}

}  // namespace
}  // namespace tutti::training
