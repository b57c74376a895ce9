// Tests that a model trains on any mesh as on one rank if the tokens of each sample are distributed
// over the context axis.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "tests/training/support/masked_data.h"
#include "tests/training/support/meshes.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/llama.h"

namespace tutti::training {
namespace {

using testing::describe;
using testing::Grid;
using testing::Outcome;
using testing::run_of;
using testing::TinyRun;

void expect_same(const TinyRun& run, int ranks, const Outcome& alone) {
  const Outcome found = testing::train(ranks, run);
  EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
  EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
  if (alone.validation > 0) {
    EXPECT_NEAR(found.validation, alone.validation, 1e-5 * alone.validation);
  }
}

class Context : public ::testing::TestWithParam<std::tuple<std::string, ContextKind>> {
 protected:
  static std::string kind() { return std::get<0>(GetParam()); }
  static ComputeOptions compute() { return {.context = std::get<1>(GetParam())}; }
};
INSTANTIATE_TEST_SUITE_P(
    Kinds, Context,
    ::testing::Combine(::testing::Values("gpt2", "llama", "few keys", "experts"),
                       ::testing::Values(ContextKind::ring, ContextKind::heads)));

TEST_P(Context, EveryMeshTrainsTheSameModel) {
  const auto run = [](const Grid& grid) {
    TinyRun run = run_of(kind(), grid, compute(), 0.2);
    run.micro_batch = 1;
    run.validation_samples = 8;
    return run;
  };
  const Outcome alone = testing::train(1, run({}));
  for (const Grid& grid :
       {Grid{.context = 2}, Grid{.context = 3}, Grid{.context = 4, .zero = 1},
        Grid{.context = 5, .zero = 2}, Grid{.context = 2, .data = 2, .zero = 3},
        Grid{.tensor = 2, .context = 2, .data = 2}, Grid{.tensor = 2, .context = 2, .sp = true},
        Grid{.context = 2, .stages = 2, .zero = 1},
        Grid{.tensor = 2, .context = 2, .stages = 2, .zero = 1, .sp = true}}) {
    SCOPED_TRACE(describe(grid));
    expect_same(run(grid), grid.ranks(), alone);
  }
}

// Distributes samples of 16 tokens over 16 and over 24 ranks. Some of the 24 ranks have no token.
TEST_P(Context, MoreRanksThanTokens) {
  const auto run = [](const Grid& grid) {
    TinyRun run = run_of(kind(), grid, compute());
    run.batch = 2;
    run.micro_batch = 1;
    run.steps = 3;
    return run;
  };
  const Outcome alone = testing::train(1, run({}));
  for (const Grid& grid : {Grid{.context = 16}, Grid{.context = 24, .zero = 1}}) {
    SCOPED_TRACE(describe(grid));
    expect_same(run(grid), grid.ranks(), alone);
  }
}

TEST_P(Context, TrainsWithRecomputationAndLossChunks) {
  for (const bool selective : {false, true}) {
    ComputeOptions options = compute();
    options.selective_recomputation = selective;
    options.loss_chunk = selective ? 5 : 0;
    const auto run = [&](const Grid& grid) {
      TinyRun run = run_of(kind(), grid, options);
      run.replica.runner.checkpoint_units = !selective;
      run.replica.runner.partition_checkpoints = grid.tensor > 1;
      return run;
    };
    const Outcome alone = testing::train(1, run({}));
    for (const Grid& grid : {Grid{.context = 3}, Grid{.tensor = 2, .context = 2}}) {
      SCOPED_TRACE(describe(grid));
      expect_same(run(grid), grid.ranks(), alone);
    }
  }
}

// Some targets are ignored, so that the number of targets differs between ranks, and is 0 on some.
TEST_P(Context, TrainsWithIgnoredTargets) {
  const auto run = [](const Grid& grid) {
    TinyRun run = run_of(kind(), grid, compute());
    run.other_data = [] {
      return std::make_unique<testing::MaskedData>(
          [](uint64_t example) { return static_cast<int64_t>(example % 17); });
    };
    run.micro_batch = 1;
    run.validation_samples = 8;
    return run;
  };
  const Outcome alone = testing::train(1, run({}));
  for (const Grid& grid : {Grid{.context = 4}, Grid{.context = 2, .data = 2, .zero = 2}}) {
    SCOPED_TRACE(describe(grid));
    expect_same(run(grid), grid.ranks(), alone);
  }
}

TEST(ContextWindows, SlideOverWhatOtherRanksHave) {
  for (const ContextKind kind : {ContextKind::ring, ContextKind::heads}) {
    const auto run = [&](int context) {
      TinyRun run = run_of("llama", {.context = context});
      run.other_model = [kind](const MeshPlace& place) {
        return std::make_unique<Llama>(LlamaConfig{.layers = 2,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .width = 32,
                                                   .context = testing::kTinyContext,
                                                   .window = 5,
                                                   .vocabulary = 256,
                                                   .compute = {.context = kind}},
                                       place);
      };
      return run;
    };
    const Outcome alone = testing::train(1, run(1));
    for (const int context : {2, 3, 4}) expect_same(run(context), context, alone);
  }
}

}  // namespace
}  // namespace tutti::training
