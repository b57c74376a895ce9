// Tests planned memory against published numbers: ZeRO's memory, and formulas for activations.
#include "training/planner/memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::training::planner {
namespace {

// The paper (Rajbhandari et al., 2020, figure 1) states the memory in GB for 7.5 B parameters on 64
// ranks.
TEST(Memory, ZeroMatchesThePaper) {
  const double parameters = 7.5e9;
  EXPECT_NEAR(zero_bytes(parameters, 0, 64) / 1e9, 120, 0.05);
  EXPECT_NEAR(zero_bytes(parameters, 1, 64) / 1e9, 31.4, 0.05);
  EXPECT_NEAR(zero_bytes(parameters, 2, 64) / 1e9, 16.6, 0.05);
  EXPECT_NEAR(zero_bytes(parameters, 3, 64) / 1e9, 1.9, 0.05);
  for (const double ranks : {1.0, 2.0, 3.0, 7.0, 1024.0}) {
    EXPECT_DOUBLE_EQ(zero_bytes(1, 1, ranks), 4 + 12 / ranks);
    EXPECT_DOUBLE_EQ(zero_bytes(1, 2, ranks), 2 + 14 / ranks);
    EXPECT_DOUBLE_EQ(zero_bytes(1, 3, ranks), 16 / ranks);
  }
}

TEST(Memory, CountsParametersInSixteenBits) {
  EXPECT_NEAR(1e9 * kHalfBytes / kGiB, 1.86, 0.005);
  EXPECT_NEAR(175e9 * kHalfBytes / 1e9, 350, 1e-9);
  EXPECT_NEAR(175e9 * kHalfBytes / kGiB, 326, 0.1);
  EXPECT_GE(1.5e9 * 16, 24e9) << "GPT-2 of 1.5 B parameters with Adam";
}

Job gpt_job(int64_t layers, int64_t hidden, int64_t heads) {
  Job job;
  job.model = load_model_shape("megatron-145.6b");
  job.model.layers = layers;
  job.model.hidden = hidden;
  job.model.heads = job.model.kv_heads = heads;
  job.model.head_width = hidden / heads;
  job.sequence = 2048;
  job.global_batch = 512;
  job.software = Software::megatron_2021;
  job.has_flash_attention = false;
  return job;
}

// A block keeps s b h (10 + 24 / t + 5 a s / (h t)) bytes; the terms depend on what is saved
// (Korthikanti et al., 2022).
TEST(Memory, ActivationsFollowTheFormulas) {
  const double s = 2048, b = 4, h = 6144, a = 64, t = 8;
  const Job job = gpt_job(48, 6144, 64);
  const auto kept = [&](bool sp, Recompute recompute) {
    const Layout layout{
        .tensor = 8, .sequence_parallel = sp, .micro_batch = 4, .recompute = recompute};
    return activations_of_layer(job, layout, false) / (s * b * h);
  };
  EXPECT_NEAR(kept(false, Recompute::none), 10 + 24 / t + 5 * a * s / (h * t), 1e-9);
  EXPECT_NEAR(kept(true, Recompute::none), (34 + 5 * a * s / h) / t, 1e-9);
  EXPECT_NEAR(kept(false, Recompute::selective), 10 + 24 / t, 1e-9);
  EXPECT_NEAR(kept(true, Recompute::selective), 34 / t, 1e-9);
  EXPECT_NEAR(kept(false, Recompute::full), 2, 1e-9);
  EXPECT_NEAR(kept(true, Recompute::full), 2 / t, 1e-9);
}

// The first stage of 1F1B keeps the activations of L blocks, that of interleaved 1F1B L (1 + (p -
// 1) / (p v)).
TEST(Memory, PipelinesKeepWhatTheirSchedulesNeed) {
  const Job job = gpt_job(96, 12288, 96);
  Layout layout{.tensor = 8, .stages = 8, .micro_batch = 1};
  const MemoryRules rules = {.measure = MemoryMeasure::activations};
  const double block = activations_of_layer(job, layout, false);
  EXPECT_NEAR(measured_memory(job, layout, rules) / block, 96, 1e-9);
  layout.virtual_stages = 3;
  EXPECT_NEAR(measured_memory(job, layout, rules) / block, 96 * (1 + 7.0 / (8 * 3)), 1e-9);
  Job small = job;
  small.global_batch = 8;
  EXPECT_NEAR(measured_memory(small, layout, rules) / block, 96, 1e-9) << "only 8 micro-batches";
}

// States take 18 bytes per parameter, or 6 + 12 / dp if the optimizer's states are sharded.
TEST(Memory, ZeroShardsStates) {
  Job job = gpt_job(4, 1024, 16);
  job.software = Software::megatron;
  const auto states = [&](int data, int zero) {
    const MemoryUse use = memory_use(job, {.data = data, .zero = zero});
    return use.parameters + use.gradients + use.states;
  };
  const double parameters = states(1, 0) / 18;
  for (const int data : {2, 3, 8}) {
    EXPECT_NEAR(states(data, 0), 18 * parameters, 1);
    EXPECT_NEAR(states(data, 1), (6 + 12.0 / data) * parameters, 1);
    EXPECT_NEAR(states(data, 2), (2 + 16.0 / data) * parameters, 1);
    EXPECT_NEAR(states(data, 3), 18.0 / data * parameters, 1);
  }
}

}  // namespace
}  // namespace tutti::training::planner
