// Tests that every rank of a pipeline reports errors, and names the place of the error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

// The units are embed, h.0 to h.5, and head.
TinyRun run_of(const std::string& schedule, int stages, int zero) {
  TinyRun run;
  run.model = {.layers = 6, .heads = 2, .width = 16, .context = 8, .vocabulary = 128};
  run.mesh.pipeline = stages;
  run.replica.pipeline = {.schedule = schedule};
  run.replica.storage.stage = zero;
  return run;
}

// --- non-finite values ---

// Sets the first element of a parameter to NaN, if this rank owns it.
void poison(Replica& replica, const std::string& parameter) {
  for (const OwnedPiece& piece : replica.owned()) {
    if (piece.spec->name != parameter || piece.piece.first > 0) continue;
    replica.values_of(piece, 0).values<float>()[0] = std::nanf("");
  }
}

TEST(PipelineNan, AllRanksNameAMiddleStagesNan) {
  constexpr int kData = 2, kStages = 4;
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"}) {
    for (const int zero : {0, 1}) {
      SCOPED_TRACE(cat(schedule, ", ZeRO ", zero));
      TinyRun run = run_of(schedule, kStages, zero);
      run.replica.pipeline.cut = {0, 3, 5, 7};
      const auto errors = run_ranks_catching(kData * kStages, [&](const Job& job) {
        TinyRank rank(job, run);
        rank.step();
        rank.replica.finish_values();
        // If values are not sharded, one rank can have other values than the rest of its stage.
        if (zero > 0 || rank.mesh.place(Axis::data) == 1) {
          poison(rank.replica, "h.3.attn.c_attn.weight");
        }
        rank.replica.publish();
        rank.step();
      });
      // h.3 is unit 4, in the stage with the units [3, 5), which is ranks 2 and 3.
      const int expected = zero > 0 ? 2 : 3;
      for (const auto& error : errors) {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
        EXPECT_THAT(error->what(), AllOf(HasSubstr("step 2: the output of h.3 on "),
                                         HasSubstr(cat("rank ", expected, " (")),
                                         HasSubstr("is not finite"), HasSubstr("learning rate")));
      }
    }
  }
}

TEST(PipelineOverflow, SkipsTheStepOnAllStages) {
  TinyRun run = run_of("1f1b", 3, 1);
  run.replica.storage.dtype = DType::f16;
  run.replica.loss_scaling = LossScalerOptions{.initial_scale = 0x1p30};
  std::vector<StepResult> results(6);
  run_ranks(6, [&](const Job& job) {
    TinyRank rank(job, run);
    results[static_cast<size_t>(job.rank)] = rank.step();
    EXPECT_EQ(rank.replica.updater().scaler()->scale(), 0x1p29);
  });
  for (const StepResult& result : results) {
    EXPECT_TRUE(result.skipped);
    EXPECT_THAT(result.overflow, AllOf(HasSubstr("the gradient of "), HasSubstr(" on rank ")));
    EXPECT_EQ(result.overflow, results[0].overflow);
    EXPECT_EQ(result.loss, results[0].loss);
  }
}

// --- mismatches ---

void expect_refused(const TinyRun& run, int ranks, const std::string& said) {
  SCOPED_TRACE(said);
  for (const auto& error :
       run_ranks_catching(ranks, [&](const Job& job) { TinyRank rank(job, run); })) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(), HasSubstr(said));
  }
}

TEST(PipelineShapes, AllRanksRefuseInconsistentShapes) {
  TinyRun run = run_of("1f1b", 2, 0);
  run.replica.pipeline.cut = {0, 8};
  expect_refused(run, 2,
                 "a model of 8 units cannot be divided into 2 chunks that start at units 0,8");
  run.replica.pipeline.cut = {1, 4};
  expect_refused(run, 2, "cannot be divided into 2 chunks");
  run.replica.pipeline.cut = {0, 2, 4};
  expect_refused(run, 4, "cannot be divided into 2 chunks");

  expect_refused(run_of("1f1b", 9, 0), 9, "9");
  TinyRun many = run_of("interleaved", 3, 0);
  many.replica.pipeline.virtual_stages = 3;
  expect_refused(many, 3, "9");
  many.replica.pipeline.schedule = "1f1b";
  expect_refused(many, 3, "1f1b");

  expect_refused(run_of("1f1b", 2, 0), 3, "3 ranks do not form a mesh");
  TinyRun both = run_of("1f1b", 2, 0);
  both.mesh.data = 2;
  expect_refused(both, 6, "6 ranks do not form a mesh of 2 (data) x 2 (pipeline)");

  expect_refused(run_of("chimera", 3, 0), 3, "even");
  expect_refused(run_of("chimera", 2, 3), 4, "the schedule chimera does not support ZeRO stage 3");
  expect_refused(run_of("2f2b", 2, 0), 2, "2f2b");
}

}  // namespace
}  // namespace tutti::training
