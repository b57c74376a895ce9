// What each ZeRO stage takes and sends: the formulas of Rajbhandari et al. (ZeRO, 2020, figure 1
// and section 7), for Psi parameters in bf16 with AdamW on N ranks.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;

double parameters_of(Model& model) {
  double count = 0;
  for (const ParameterSpec& spec : model.parameters().specs()) {
    count += static_cast<double>(spec.count());
  }
  return count;
}

TinyRun large_run(int stage, int ranks) {
  TinyRun run;
  run.model = {.layers = 13, .heads = 4, .width = 256, .context = 8};
  run.replica.storage = {.stage = stage, .dtype = DType::bf16};
  run.batch = static_cast<uint64_t>(ranks);
  run.steps = 1;
  return run;
}

// Bytes per parameter: what each kind takes on N ranks.
struct Formula {
  double parameters;
  double gradients;
  double optimizer;  // fp32 masters and two moments
};

Formula formula(int stage, double n) {
  return {stage < 3 ? 2 : 2 / n, stage < 2 ? 2 : 2 / n, stage < 1 ? 12 : 12 / n};
}

struct Measured {
  MemoryReport memory;
  double bytes_sent = 0;  // in a step
};

class Costs : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Costs, FollowTheFormulas) {
  const auto [stage, ranks] = GetParam();
  const TinyRun run = large_run(stage, ranks);
  Gpt model(run.model);
  const double psi = parameters_of(model);
  ASSERT_GE(psi, 10e6);
  std::vector<Measured> measured(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    Measured& own = measured[static_cast<size_t>(job.rank)];
    const double before = rank.replica.bytes_sent();
    rank.step();
    own = {rank.replica.memory(), rank.replica.bytes_sent() - before};
  });
  const Formula expected = formula(stage, ranks);
  for (const Measured& rank : measured) {
    const StorageBytes& storage = rank.memory.storage;
    const auto near = [&](int64_t bytes, double per_parameter) {
      EXPECT_NEAR(static_cast<double>(bytes) / psi, per_parameter, 0.02 * per_parameter);
    };
    near(storage.parameters, expected.parameters);
    near(storage.gradients, expected.gradients);
    near(storage.masters + rank.memory.optimizer, expected.optimizer);
    near(storage.parameters + storage.gradients + storage.masters + rank.memory.optimizer,
         expected.parameters + expected.gradients + expected.optimizer);
    // What comes on top of the formulas.
    EXPECT_LT(static_cast<double>(storage.padding), 0.01 * 16 * psi);
    if (stage < 2) EXPECT_EQ(storage.gathered, 0);
    EXPECT_LT(static_cast<double>(storage.gathered), 1.2 * psi) << "a few buckets of 2 to 3 MB";
    const double volume = (stage < 3 ? 2 : 3) * 2 * psi * (ranks - 1) / ranks;
    EXPECT_NEAR(rank.bytes_sent, volume, 0.01 * volume);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Zero, Costs, ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values(1, 2, 4, 8)),
    [](const auto& info) {
      return cat("Stage", std::get<0>(info.param), "On", std::get<1>(info.param));
    });

// --- constant-size buffers (section 6.2) ---

// Of rank 0, after each of some steps.
std::vector<MemoryReport> reports(int ranks, TinyRun run) {
  run.steps = 10;
  std::vector<MemoryReport> reports;
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (uint64_t step = 0; step < run.steps; ++step) {
      rank.step();
      if (job.rank == 0) reports.push_back(rank.replica.memory());
    }
  });
  return reports;
}

TEST(GatheredBuckets, AreNoMoreForMoreStepsOrLayers) {
  for (const int stage : {2, 3}) {
    const auto bytes = [&](int64_t layers, bool overlap) {
      TinyRun run;
      run.model.layers = layers;
      run.batch = 2;
      run.replica.storage = {
          .stage = stage, .bucket_elements = 1 << 13, .first_bucket_elements = 1 << 13};
      run.replica.data_parallel.overlap = overlap;
      const std::vector<MemoryReport> steps = reports(2, run);
      if (!overlap) {
        EXPECT_EQ(steps.back().storage.gathered, steps.front().storage.gathered);
      }
      return steps.back().storage.gathered;
    };
    const int64_t one_at_a_time = bytes(3, false);
    EXPECT_GT(one_at_a_time, 0);
    EXPECT_LE(bytes(12, false), one_at_a_time) << stage;  // whose largest bucket is larger
    // Sums are under way while backward goes on: when their buckets are free is a matter of luck,
    // but no more than a few are ever taken.
    EXPECT_LE(bytes(12, true), 2 * one_at_a_time) << stage;
  }
}

TEST(Activations, AreFewerWhereTheyAreRecomputed) {
  const auto bytes = [](bool selective, bool full) {
    TinyRun run;
    run.model.layers = 4;
    run.model.selective_recomputation = selective;
    run.replica.runner.checkpoint_units = full;
    const std::vector<MemoryReport> steps = reports(1, run);
    for (const MemoryReport& report : steps) {
      EXPECT_EQ(report.activations, steps.front().activations) << "no growth";
    }
    return steps.front().activations;
  };
  const int64_t none = bytes(false, false);
  const int64_t selective = bytes(true, false);
  const int64_t full = bytes(false, true);
  EXPECT_GT(none, selective);
  EXPECT_GT(selective, full);
  EXPECT_GT(full, 0);
}

}  // namespace
}  // namespace tutti::training
