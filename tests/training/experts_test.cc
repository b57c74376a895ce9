// Tests mixtures of experts on meshes: the balance loss does not depend on how a batch is divided,
// and no token is lost.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/support/meshes.h"
#include "tests/training/support/tiny_run.h"
#include "training/data/data_set.h"
#include "training/models/llama.h"

namespace tutti::training {
namespace {

using testing::describe;
using testing::Grid;
using testing::Outcome;
using testing::TinyRun;

TinyRun run_of(const RouterOptions& router, const Grid& grid = {}, uint64_t micro_batch = 1) {
  TinyRun run = testing::run_of("experts", grid);
  const int64_t shared = router.topk == 1 ? 0 : 12;
  run.other_model = [router, shared, sp = grid.sp](const MeshPlace& place) {
    return std::make_unique<Llama>(LlamaConfig{.family = LlamaFamily::mixtral,
                                               .layers = 2,
                                               .heads = 4,
                                               .width = 32,
                                               .hidden = 24,
                                               .context = testing::kTinyContext,
                                               .vocabulary = 259,
                                               .router = router,
                                               .shared_hidden = shared,
                                               .compute = {.sequence_parallel = sp}},
                                   place);
  };
  run.micro_batch = micro_batch;
  run.steps = 5;
  return run;
}

std::vector<Grid> grids() {
  return {{.data = 2},
          {.data = 4, .zero = 3},
          {.stages = 2},
          {.context = 2, .data = 2},
          {.tensor = 2, .data = 2, .sp = true},
          {.tensor = 2, .data = 2, .stages = 2, .zero = 1},
          {.data = 2, .experts = 2},
          {.data = 4, .zero = 2, .experts = 4},
          {.tensor = 2, .data = 2, .zero = 3, .experts = 2},
          {.tensor = 2, .data = 2, .sp = true, .experts = 4},
          {.context = 2, .data = 2, .zero = 1, .experts = 4},
          {.tensor = 2, .context = 2, .stages = 2, .experts = 4}};
}

void expect_alike(const Outcome& found, const Outcome& alone) {
  EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
  EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
  ASSERT_EQ(found.named.size(), alone.named.size());
  for (const auto& [name, values] : alone.named) {
    EXPECT_LT(testing::relative_difference(found.named.at(name), values), 1e-5) << name;
  }
}

// Other systems had these defects: the loss depended on micro-batches, stages or accumulation,
// counts were summed twice over ranks, or only one tensor rank had the gradient of the loss. A
// large weight of the balance loss reveals them.
TEST(Experts, TheBalanceLossDoesNotDependOnHowTheBatchIsCut) {
  for (const BalanceOf of : {BalanceOf::all_layers, BalanceOf::each_layer}) {
    const RouterOptions router{.experts = 5, .topk = 2, .balance_loss = 2, .balance = of};
    const Outcome alone = testing::train(1, run_of(router, {}, 8));
    ASSERT_EQ(alone.named.at("balance_loss").size(), 5u);
    RouterOptions hardly = router;
    hardly.balance_loss = 1e-9;
    EXPECT_LT(alone.named.at("balance_loss").back(),
              testing::train(1, run_of(hardly)).named.at("balance_loss").back());
    for (const uint64_t micro_batch : {1, 2, 4}) {
      expect_alike(testing::train(1, run_of(router, {}, micro_batch)), alone);
    }
    for (const Grid& grid : grids()) {
      SCOPED_TRACE(describe(grid));
      expect_alike(testing::train(grid.ranks(), run_of(router, grid)), alone);
    }
  }
}

// Context ranks share the tokens of each sequence and of each micro-batch.
TEST(Experts, BalancesEachSequenceOrMicroBatch) {
  for (const BalanceScope scope : {BalanceScope::sequence, BalanceScope::micro_batch}) {
    const RouterOptions router{.experts = 5, .topk = 2, .balance_loss = 2, .balance_scope = scope};
    const bool of_sequences = scope == BalanceScope::sequence;
    const Outcome alone = testing::train(1, run_of(router, {}, of_sequences ? 4 : 1));
    for (const Grid& grid : grids()) {
      SCOPED_TRACE(describe(grid));
      expect_alike(testing::train(grid.ranks(), run_of(router, grid)), alone);
    }
  }
}

// The samples of a micro-batch are computed in two parts, because sums over tensor ranks overlap
// with the computation of the other part. Nevertheless the balance loss is the one of the whole
// micro-batch.
TEST(Experts, BalancesAMicroBatchThatIsComputedInParts) {
  const RouterOptions router{
      .experts = 5, .topk = 2, .balance_loss = 2, .balance_scope = BalanceScope::micro_batch};
  const auto wide = [&](const Grid& grid) {
    TinyRun run = run_of(router, grid, 8);
    run.other_model = [router](const MeshPlace& place) {
      return std::make_unique<Llama>(LlamaConfig{.family = LlamaFamily::mixtral,
                                                 .layers = 1,
                                                 .heads = 4,
                                                 // The micro-batch has two parts of 256 KiB each.
                                                 .width = 1024,
                                                 .hidden = 32,
                                                 .context = testing::kTinyContext,
                                                 .vocabulary = 259,
                                                 .router = router},
                                     place);
    };
    run.steps = 2;
    return run;
  };
  expect_alike(testing::train(2, wide({.tensor = 2})), testing::train(1, wide({})));
}

// With equal scores, the sum over the E experts of (choices / tokens) x (1 / E) x E is topk.
TEST(Experts, AnEvenBalanceIsTheNumberOfChoices) {
  RouterOptions router{.experts = 4, .topk = 3, .balance_loss = 1e-6};
  const Outcome found = testing::train(1, run_of(router));
  EXPECT_NEAR(found.named.at("balance_loss").front(), 3, 0.2);
}

// In another system, an expert that no token chose made the losses of step 2 NaN.
TEST(Experts, AnExpertWithoutTokensDoesNoHarm) {
  const RouterOptions router{.experts = 64, .topk = 1, .balance_loss = 0.1};
  const Outcome alone = testing::train(1, run_of(router));
  for (const double loss : alone.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    expect_alike(testing::train(grid.ranks(), run_of(router, grid)), alone);
  }
}

// With one expert the router has no choice: the model is equivalent to a single feed-forward layer.
TEST(Experts, AllTokensGoToOneExpert) {
  const RouterOptions router{.experts = 1, .topk = 1};
  TinyRun run = run_of(router);
  const Outcome found = testing::train(1, run);
  run.other_model = [](const MeshPlace& place) {
    return std::make_unique<Llama>(LlamaConfig{.layers = 2,
                                               .heads = 4,
                                               .width = 32,
                                               .hidden = 24,
                                               .context = testing::kTinyContext,
                                               .vocabulary = 259},
                                   place);
  };
  // The dense layer's parameters have other names, and therefore other initial values.
  const Outcome dense = testing::train(1, run);
  EXPECT_NEAR(found.losses.front(), dense.losses.front(), 0.05);
  EXPECT_NEAR(found.losses.back(), dense.losses.back(), 0.2);
}

// All tokens are equal, so that they choose the same experts, and most ranks of the experts axis
// receive no row.
TEST(Experts, OneRankMayHaveAllTokensAndAnotherNone) {
  const RouterOptions router{.experts = 4, .topk = 1, .balance_loss = 0.1};
  const auto same_tokens = [&](const Grid& grid) {
    TinyRun run = run_of(router, grid);
    run.other_data = []() -> std::unique_ptr<DataSet> {
      return std::make_unique<TokenWindows>(
          Tokens(split_text(std::vector<uint8_t>(2000, uint8_t{'a'}))), testing::kTinyContext, 1);
    };
    return run;
  };
  const Outcome alone = testing::train(1, same_tokens({}));
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    expect_alike(testing::train(grid.ranks(), same_tokens(grid)), alone);
  }
}

// If every expert receives every token, T k h (p - 1) / p values are sent to the experts and as
// many back, and twice as many again for the gradients. In addition, weights and their gradients
// are sent.
TEST(Experts, CountsTheBytesSent) {
  const RouterOptions router{.experts = 4, .topk = 4};
  for (const Grid& grid : {Grid{.data = 2, .experts = 2}, Grid{.data = 4, .experts = 4},
                           Grid{.tensor = 2, .experts = 2}, Grid{.context = 2, .experts = 2}}) {
    SCOPED_TRACE(describe(grid));
    std::vector<double> bytes(static_cast<size_t>(grid.ranks()));
    tutti::testing::run_ranks(grid.ranks(), [&](const Job& job) {
      TinyRun run = run_of(router, grid);
      testing::TinyRank rank(job, run);
      rank.step();
      const double found = rank.mesh.unit_traffic().bytes[static_cast<size_t>(Axis::expert)];
      bytes[static_cast<size_t>(job.rank)] = found;
    });
    const double choices = 2 * 8 * testing::kTinyContext * 4;  // number of choices in all layers
    const double away = choices * (grid.experts - 1) / grid.experts;
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), 0.0), away * (4 * 32 * 4 + 2 * 8));
  }
}

// A row for several ranks of a host is sent to one of them, which forwards it to the others.
TEST(Experts, ATokenGoesToAHostOnce) {
  const RouterOptions some{.experts = 5, .topk = 3, .balance_loss = 0.1};
  const Outcome alone = testing::train(1, run_of(some));
  for (const Grid& grid :
       {Grid{.data = 4, .experts = 4}, Grid{.data = 4, .zero = 3, .experts = 2},
        Grid{.data = 5, .experts = 5}, Grid{.tensor = 2, .data = 2, .sp = true, .experts = 4},
        Grid{.context = 2, .data = 2, .experts = 4},
        Grid{.tensor = 2, .data = 2, .stages = 2, .zero = 1, .experts = 2}}) {
    for (const int each : {1, 2, 3}) {
      SCOPED_TRACE(cat(describe(grid), ", ", each, " ranks on a host"));
      TinyRun run = run_of(some, grid);
      run.ranks_of_a_host = each;
      expect_alike(testing::train(grid.ranks(), run), alone);
    }
  }
  // Two of the four experts are on the other host.
  const Grid grid{.data = 2, .experts = 2};
  double bytes = 0;
  std::mutex mutex;
  tutti::testing::run_ranks(grid.ranks(), [&](const Job& job) {
    TinyRun run = run_of(RouterOptions{.experts = 4, .topk = 4}, grid);
    run.ranks_of_a_host = 1;
    testing::TinyRank rank(job, run);
    rank.step();
    const std::lock_guard lock(mutex);
    bytes += rank.mesh.unit_traffic().bytes[static_cast<size_t>(Axis::expert)];
  });
  const double tokens = 2 * 8 * testing::kTinyContext;  // number of tokens in all layers
  // A row is sent four times: to the expert and back, in forward and backward. Its 4 choices and
  // their weights are sent once, and the gradients of the weights are returned.
  EXPECT_EQ(bytes, tokens * (4 * 32 * 4 + 2 * 4 * 8 + 4 * 8));
}

TEST(Experts, MoreRanksThanExpertsAreRefused) {
  try {
    testing::train(4, run_of(RouterOptions{.experts = 3, .topk = 2}, {.data = 4, .experts = 4}));
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("3 experts cannot be divided over 4 ranks [--ep]"),
              std::string::npos)
        << error.what();
  }
}

struct Loads {
  std::vector<std::vector<int64_t>> by_layer;
  int64_t dropped = 0;
};

Loads loads_of(int ranks, const TinyRun& run) {
  Loads loads;
  tutti::testing::run_ranks(ranks, [&](const Job& job) {
    testing::TinyRank rank(job, run);
    const StepResult result = rank.step();
    if (rank.mesh.world().rank() == ranks - 1) loads = {result.expert_load, result.dropped};
  });
  return loads;
}

// Dropped choices are counted too.
TEST(Experts, EachChoiceIsCountedOnce) {
  const RouterOptions router{.experts = 5, .topk = 2};
  const Loads alone = loads_of(1, run_of(router));
  ASSERT_EQ(alone.by_layer.size(), 2u);
  for (const auto& layer : alone.by_layer) {
    EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), int64_t{0}),
              2 * 8 * testing::kTinyContext);
  }
  EXPECT_EQ(alone.dropped, 0);
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    EXPECT_EQ(loads_of(grid.ranks(), run_of(router, grid)).by_layer, alone.by_layer);
  }
}

TEST(Experts, DroppedChoicesDoNotDependOnTheMesh) {
  for (const FullExpert full : {FullExpert::by_position, FullExpert::by_score}) {
    const RouterOptions router{.experts = 4, .topk = 1, .capacity = 0.5, .full = full};
    // Each of the 4 experts takes at most 2 of a sample's 16 choices.
    const Loads loads = loads_of(1, run_of(router, {}, 4));
    EXPECT_GE(loads.dropped, 2 * 8 * (16 - 4 * 2));
    const Outcome alone = testing::train(1, run_of(router, {}, 4));
    for (const Grid& grid : grids()) {
      SCOPED_TRACE(describe(grid));
      EXPECT_EQ(loads_of(grid.ranks(), run_of(router, grid)).dropped, loads.dropped);
      expect_alike(testing::train(grid.ranks(), run_of(router, grid)), alone);
    }
  }
}

// The capacity is so small that each expert takes one choice per sample.
TEST(Experts, AnExpertTakesAtLeastOneChoicePerSample) {
  const RouterOptions router{.experts = 4, .topk = 1, .capacity = 1e-9};
  const Loads loads = loads_of(1, run_of(router));
  EXPECT_GE(loads.dropped, 2 * 8 * (16 - 4));
  EXPECT_LT(loads.dropped, 2 * 8 * 16);
}

TEST(Experts, ABiasBalancesWithoutALoss) {
  const RouterOptions router{.experts = 5, .topk = 2, .bias_rate = 1e-2};
  const Outcome alone = testing::train(1, run_of(router));
  ASSERT_EQ(alone.buffers.size(), 2u);
  for (const std::vector<float>& bias : alone.buffers) {
    ASSERT_EQ(bias.size(), 5u);
    for (const float each : bias) EXPECT_LE(std::abs(each), 5 * 1e-2f + 1e-6f);
    EXPECT_GT(*std::ranges::max_element(bias), 0);
    EXPECT_LT(*std::ranges::min_element(bias), 0);
  }
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    const Outcome found = testing::train(grid.ranks(), run_of(router, grid));
    expect_alike(found, alone);
    EXPECT_EQ(found.buffers, alone.buffers);
  }
}

TEST(Experts, RefusesInvalidOptions) {
  const auto refusal = [](const RouterOptions& router) {
    try {
      testing::train(1, run_of(router));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal({.experts = 2, .topk = 3}).find("--topk"), std::string::npos);
  EXPECT_NE(refusal({.experts = 6, .topk = 2, .groups = 4}).find("--expert-groups"),
            std::string::npos);
  EXPECT_NE(refusal({.experts = 6, .topk = 3, .groups = 3, .topk_groups = 1}).find("--topk-groups"),
            std::string::npos);
  EXPECT_NE(refusal({.experts = 4, .topk = 2, .jitter = 1}).find("--router-jitter"),
            std::string::npos);
  TinyRun unflushed = run_of({.experts = 4, .topk = 2, .balance_loss = 1}, {.stages = 2});
  unflushed.replica.pipeline.schedule = "pipedream-2bw";
  unflushed.replica.clip.reset();
  try {
    testing::train(2, unflushed);
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("pipedream-2bw"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tutti::training
