// Tests the memory for activations of a model on each stage of a pipeline. It equals the bound of
// the checker to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"
#include "training/pipeline/check.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using training::testing::TinyRank;
using training::testing::TinyRun;
using tutti::testing::run_ranks;

// Memory that one stage uses in a step.
struct Taken {
  int activations = 0;  // largest number of micro-batches with activations, counting each chunk
  std::vector<size_t> slots;  // bytes of each slot
  size_t bytes() const { return std::accumulate(slots.begin(), slots.end(), size_t{0}); }
};

// Trains one step of a model with identical blocks. Each chunk has one block; the first and the
// last chunk have additional layers. Returns the memory of each stage.
std::vector<Taken> take_a_step(const Schedule& schedule, int micro_batches, bool recompute) {
  TinyRun run;
  run.model = {.layers = schedule.chunks, .heads = 2, .width = 16, .context = 8, .vocabulary = 128};
  run.mesh.pipeline = schedule.ranks;
  run.replica.pipeline = {.schedule = schedule.name,
                          .virtual_stages = schedule.chunks / schedule.ranks};
  run.replica.pipeline.cut.push_back(0);
  for (int chunk = 1; chunk < schedule.chunks; ++chunk) {
    run.replica.pipeline.cut.push_back(chunk + 1);
  }
  run.replica.runner.checkpoint_units = recompute;
  run.batch = static_cast<uint64_t>(micro_batches);
  run.steps = 2;
  std::vector<Taken> taken(static_cast<size_t>(schedule.ranks));
  run_ranks(schedule.ranks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (int step = 0; step < 2; ++step) rank.step();
    taken[static_cast<size_t>(job.rank)] = {rank.replica.gradients().executor().most_activations(),
                                            rank.replica.gradients().runner().slot_bytes()};
  });
  return taken;
}

struct Case {
  Schedule schedule;
  bool recompute = false;
};

std::vector<Case> cases() {
  return {{gpipe(3, 6)},
          {gpipe(2, 4), true},
          {one_f_one_b(4, 8)},
          {one_f_one_b(4, 2)},
          {one_f_one_b(3, 6), true},
          {zero_bubble_h1(4, 8)},
          {zero_bubble_h1(2, 4), true},
          {zero_bubble_h2(4, 8)},
          {zero_bubble_h2(3, 7)},
          {interleaved(2, 4, 2)},
          {interleaved(3, 6, 2)},
          {interleaved(2, 6, 3), true}};
}

TEST(ActivationsTest, CountIsTheCheckersBoundAndSlotsHaveOneSize) {
  for (const auto& [schedule, recompute] : cases()) {
    SCOPED_TRACE(cat(schedule.name, " on ", schedule.ranks, ", ", schedule.micro_batches,
                     " micro-batches", recompute ? ", recomputing" : ""));
    const Bounds bounds = check(make_plan(schedule));
    const std::vector<Taken> taken = take_a_step(schedule, schedule.micro_batches, recompute);
    for (int stage = 0; stage < schedule.ranks; ++stage) {
      SCOPED_TRACE(cat("stage ", stage));
      const Taken& own = taken[static_cast<size_t>(stage)];
      const int bound = bounds.ranks[static_cast<size_t>(stage)].activations;
      EXPECT_EQ(own.activations, bound);
      EXPECT_EQ(std::ssize(own.slots), bound);
      if (schedule.chunks > schedule.ranks && (stage == 0 || stage + 1 == schedule.ranks)) {
        continue;  // because its chunks have two sizes
      }
      EXPECT_THAT(own.slots, Each(own.slots.front()));
    }
  }
}

TEST(ActivationsTest, BytesAreThoseOfOneMicroBatchTimesTheBound) {
  for (const std::string name : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    constexpr int kStages = 3, kMicroBatches = 7;
    const ScheduleKind& kind = schedule_named(name);
    const Schedule one = make_schedule(kind, {.ranks = kStages, .micro_batches = 1});
    const Schedule many = make_schedule(kind, {.ranks = kStages, .micro_batches = kMicroBatches});
    const std::vector<Taken> single = take_a_step(one, 1, false);
    const std::vector<Taken> taken = take_a_step(many, kMicroBatches, false);
    const Bounds bounds = check(make_plan(many));
    for (size_t stage = 0; stage < kStages; ++stage) {
      SCOPED_TRACE(cat(name, ", stage ", stage));
      EXPECT_EQ(single[stage].activations, 1);
      EXPECT_EQ(single[stage].slots.size(), 1u);
      EXPECT_EQ(taken[stage].bytes(),
                static_cast<size_t>(bounds.ranks[stage].activations) * single[stage].bytes());
    }
  }
}

// The numbers are those in the papers.
TEST(ActivationsTest, GpipeKeepsAllMicroBatchesAnd1f1bThePipelinesDepth) {
  constexpr int kStages = 4;
  for (const int m : {2, 4, 9}) {
    const std::vector<Taken> gpipes = take_a_step(gpipe(kStages, m), m, false);
    const std::vector<Taken> ones = take_a_step(one_f_one_b(kStages, m), m, false);
    for (int stage = 0; stage < kStages; ++stage) {
      EXPECT_EQ(gpipes[static_cast<size_t>(stage)].activations, m);
      EXPECT_EQ(ones[static_cast<size_t>(stage)].activations, std::min(m, kStages - stage));
    }
  }
}

// With recomputation, only the output of each unit is kept. Other memory of a forward pass exists
// only once.
TEST(ActivationsTest, RecomputationKeepsOutputsAlone) {
  const std::vector<Taken> all = take_a_step(one_f_one_b(4, 6), 6, false);
  const std::vector<Taken> outputs = take_a_step(one_f_one_b(4, 6), 6, true);
  constexpr size_t kOutput = sizeof(float) * 8 * 16;
  EXPECT_THAT(outputs[1].slots, ElementsAre(kOutput, kOutput, kOutput));
  EXPECT_THAT(outputs[2].slots, ElementsAre(kOutput, kOutput));
  for (const size_t stage : {1, 2}) EXPECT_GT(all[stage].bytes(), 10 * outputs[stage].bytes());
}

}  // namespace
}  // namespace tutti::training::pipeline
