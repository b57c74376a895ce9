// Tests training in which products are computed in a narrow format (--gemm-format): every layout
// gives the same bits, as without the format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "base/text.h"
#include "tests/training/support/meshes.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::describe;
using testing::Deterministic;
using testing::Grid;
using testing::Outcome;
using testing::run_of;
using testing::TinyRun;

TinyRun run_in(GemmFormat format, const std::string& kind, const Grid& grid,
               const ComputeOptions& compute = {}) {
  TinyRun run = run_of(kind, grid, compute, 0.1);
  run.replica.runner.gemm_format = format;
  run.replica.runner.seed = 7;
  run.micro_batch = 2;
  run.steps = 4;
  return run;
}

class GemmFormats : public ::testing::TestWithParam<std::tuple<GemmFormat, std::string>> {
 protected:
  const Deterministic deterministic_;
};
INSTANTIATE_TEST_SUITE_P(All, GemmFormats,
                         ::testing::Combine(::testing::Values(GemmFormat::tf32, GemmFormat::fp8,
                                                              GemmFormat::mxfp8, GemmFormat::nvfp4),
                                            ::testing::Values("gpt2", "llama", "few keys",
                                                              "experts")));

TEST_P(GemmFormats, HaveTheSameBitsInAnyLayout) {
  const auto& [format, kind] = GetParam();
  const Outcome alone = testing::train(2, run_in(format, kind, {.data = 2}, {.slices = 8}));
  EXPECT_NE(testing::train(2, run_in(GemmFormat::none, kind, {.data = 2}, {.slices = 8})).losses,
            alone.losses);
  for (Grid grid : {Grid{.tensor = 2}, Grid{.tensor = 4, .zero = 3, .sp = true},
                    Grid{.stages = 2, .zero = 1}, Grid{.tensor = 2, .stages = 2, .zero = 2}}) {
    grid.data = 2;
    SCOPED_TRACE(describe(grid));
    TinyRun run = run_in(format, kind, grid, {.slices = 8});
    EXPECT_EQ(testing::difference(testing::train(grid.ranks(), run), alone), "");
    run.replica.runner.checkpoint_units = true;
    if (grid.stages > 1) run.replica.pipeline.schedule = "zb-h1";
    EXPECT_EQ(testing::difference(testing::train(grid.ranks(), run), alone), "");
  }
}

// The gradients of a micro-batch are rounded to the same values on any rank.
TEST_P(GemmFormats, RoundMicroBatchesAlikeOnAllRanks) {
  const auto& [format, kind] = GetParam();
  const auto run = [&](const Grid& grid) {
    TinyRun its = run_in(format, kind, grid, {.slices = 8});
    its.micro_batch = 1;
    return its;
  };
  const Outcome alone = testing::train(1, run({}));
  EXPECT_EQ(testing::difference(testing::train(4, run({.data = 4, .zero = 2})), alone), "");
}

// Outside deterministic mode, each rank chooses blocks and scales within its own part of an
// operand, so that layouts differ in rounding.
TEST(GemmFormat, TrainsInAnyLayout) {
  for (const GemmFormat format :
       {GemmFormat::tf32, GemmFormat::fp8, GemmFormat::mxfp8, GemmFormat::nvfp4}) {
    for (const char* kind : {"gpt2", "experts"}) {
      const Outcome wide = testing::train(1, run_in(GemmFormat::none, kind, {}));
      for (const Grid& grid : {Grid{}, Grid{.tensor = 2}, Grid{.tensor = 2, .sp = true},
                               Grid{.context = 2}, Grid{.data = 2, .stages = 2, .experts = 2}}) {
        SCOPED_TRACE(cat(kind, ' ', describe(grid)));
        const Outcome outcome = testing::train(grid.ranks(), run_in(format, kind, grid));
        EXPECT_LT(testing::relative_difference(outcome.losses, wide.losses), 0.05);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::training
