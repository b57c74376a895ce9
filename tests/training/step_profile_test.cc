// Tests the profile of steps of a small gpt2.
#include "training/engine/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using ::testing::IsSupersetOf;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;

constexpr int kSteps = 5;

struct Profiled {
  StepProfile profile;
  std::vector<double> losses;
  double flops_per_sample = 0;
};

// Runs on `ranks` ranks. Returns the profile of rank 0.
Profiled profiled(const TinyRun& run, int ranks = 1) {
  Profiled first;
  run_ranks(ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    StepProfiler profiler;
    rank.replica.profile(profiler);
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const ObserveKernels observe(&profiler);
      profiler.begin();
      losses.push_back(rank.step().loss);
      profiler.end(1);
    }
    if (job.rank != 0) return;
    first = {profiler.report(*rank.model), losses, rank.model->flops_per_sample()};
  });
  return first;
}

double operations(const StepProfile& profile, const std::string& prefix) {
  double sum = 0;
  for (const auto& [name, totals] : profile.kernels()) {
    if (name.starts_with(prefix)) sum += totals.operations;
  }
  return sum;
}

std::set<std::string> phases_of(const StepProfile& profile, const std::string& unit) {
  std::set<std::string> phases;
  for (const ProfilePart& part : profile.parts) {
    if (part.unit == unit) phases.insert(part.phase);
  }
  return phases;
}

TEST(StepProfile, KernelsTakeNoLongerThanTheirPart) {
  const StepProfile profile = profiled({}).profile;
  EXPECT_EQ(profile.steps, kSteps - 2);
  EXPECT_EQ(profile.skipped, 2);
  double seconds = 0;
  for (const ProfilePart& part : profile.parts) {
    double kernels = 0;
    for (const auto& [name, totals] : part.kernels) kernels += totals.seconds;
    EXPECT_LE(kernels, part.seconds * (1 + 1e-9)) << part.unit << ' ' << part.phase;
    seconds += part.seconds;
  }
  EXPECT_NEAR(seconds, profile.seconds, 1e-9 * profile.seconds);
}

TEST(StepProfile, HasEachUnitsPhases) {
  const StepProfile profile = profiled({}).profile;
  for (const std::string unit : {"h.0", "h.1"}) {
    EXPECT_THAT(phases_of(profile, unit), IsSupersetOf({"forward", "backward", "exchange"}));
  }
  EXPECT_THAT(phases_of(profile, ""), IsSupersetOf({"exchange", "update", "other"}));
}

TEST(StepProfile, CountsTheModelsOperations) {
  const TinyRun run;
  const Profiled found = profiled(run);
  const auto samples = static_cast<double>(run.batch);
  const double context = testing::kTinyContext;
  const double attention =
      12.0 * static_cast<double>(run.model.layers * run.model.width) * context * context;
  const double products = samples * (found.flops_per_sample - attention);
  EXPECT_NEAR(operations(found.profile, "gemm"), products, 0.01 * products);
  // A causal query attends to half of the keys on average. The backward pass computes the scores
  // again, so that it counts 5 where forward counts 2.
  const double seen = 0.5 * (context + 1) / context;
  const double passes = samples * attention * seen * (2 + 5) / 6;
  EXPECT_NEAR(operations(found.profile, "causal_attention"), passes, 0.01 * passes);
}

TEST(StepProfile, CountsForwardAgainIfItIsRecomputed) {
  TinyRun run;
  const double kept = operations(profiled(run).profile, "gemm");
  run.replica.runner.checkpoint_units = true;
  const StepProfile profile = profiled(run).profile;
  EXPECT_GT(operations(profile, "gemm"), 1.2 * kept);
}

TEST(StepProfile, ChangesNoBit) {
  for (const int ranks : {1, 2}) {
    TinyRun run;
    run.steps = kSteps;
    EXPECT_EQ(profiled(run, ranks).losses, train(ranks, run).losses) << ranks;
  }
}

TEST(StepProfile, CountsNothingBetweenSteps) {
  StepProfiler profiler;
  const ObserveKernels observe(&profiler);
  { const KernelSpan span("before"); }
  { const ProfileSpan span(&profiler, StepProfiler::Phase::update); }
  profiler.begin();
  { const KernelSpan span("within"); }
  profiler.end(1);
  { const KernelSpan span("after"); }
  testing::TinyRun run;
  const StepProfile profile = profiler.report(*testing::make_model(run));
  ASSERT_EQ(profile.parts.size(), 1u);
  EXPECT_EQ(profile.parts[0].phase, "other");
  EXPECT_EQ(profile.parts[0].kernels.size(), 1u);
  EXPECT_EQ(profile.parts[0].kernels.count("within"), 1u);
}

}  // namespace
}  // namespace tutti::training
