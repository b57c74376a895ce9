// Tests against published defects of other systems in combinations of several kinds of parallelism.
// They were silent: losses and gradients were wrong, but training continued. The comment of each
// test describes the defect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/training/support/masked_data.h"
#include "tests/training/support/meshes.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::describe;
using testing::Grid;
using testing::Outcome;
using testing::run_of;
using testing::TinyRun;

// Returns layouts in which the defects could appear: two adjacent groups of one kind, shared rows,
// stages, sharded states, and parts of samples.
std::vector<Grid> grids() {
  return {{.tensor = 2, .sp = true},
          {.tensor = 4},
          {.tensor = 2, .data = 2, .sp = true},
          {.tensor = 2, .data = 2, .zero = 3},
          {.tensor = 2, .stages = 2, .sp = true},
          {.tensor = 2, .data = 2, .stages = 2, .zero = 1, .sp = true},
          {.context = 3},
          {.context = 4, .data = 2, .zero = 3},
          {.tensor = 2, .context = 2, .data = 2, .sp = true},
          {.tensor = 2, .data = 2, .zero = 1, .experts = 2},
          {.tensor = 2, .data = 2, .sp = true, .experts = 4}};
}

class SilentBugs : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SilentBugs,
                         ::testing::Values("gpt2", "llama", "few keys", "experts"));

// Returns the number of ignored targets. Every other example ignores all targets, the others ignore
// some, so that some micro-batches, and all samples of some ranks, have no targets.
int64_t most(uint64_t example) {
  return example % 2 == 0 ? testing::kTinyContext : 3 + static_cast<int64_t>(example % 9);
}

// Defect: the loss was divided by a rank's own number of targets, which could be 0.
TEST_P(SilentBugs, TheLossIsDividedByTheTargetsOfAllRanks) {
  const auto sparse = [](const Grid& grid) {
    TinyRun run = run_of(GetParam(), grid);
    run.other_data = [] { return std::make_unique<testing::MaskedData>(most); };
    run.micro_batch = 1;
    run.validation_samples = 8;
    return run;
  };
  const Outcome alone = testing::train(1, sparse({}));
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    const Outcome found = testing::train(grid.ranks(), sparse(grid));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
    EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
    EXPECT_NEAR(found.validation, alone.validation, 1e-5 * alone.validation);
  }
}

// Returns the gradients of the first step, computed from the values after a step of SGD (without
// momentum and clipping) at the learning rates 0 and kRate: (w(0) - w(kRate)) / kRate.
testing::Whole first_gradients(const TinyRun& given, int ranks) {
  constexpr double kRate = 1e4;
  TinyRun run = given;
  run.optimizer = {{"name", "sgd"}, {"momentum", 0}};
  run.replica.clip.reset();
  run.steps = 1;
  run.learning_rate = 0;
  testing::Whole gradients = testing::train(ranks, run).parameters;
  run.learning_rate = kRate;
  const testing::Whole after = testing::train(ranks, run).parameters;
  for (size_t p = 0; p < gradients.size(); ++p) {
    for (size_t i = 0; i < gradients[p].size(); ++i) {
      gradients[p][i] = static_cast<float>((gradients[p][i] - after[p][i]) / kRate);
    }
  }
  return gradients;
}

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// Defect: gradients of the gains of normalizations were those of one rank's rows, and gradients of
// parameters that are divided were those of one part, or were summed twice.
TEST_P(SilentBugs, GradientsAreSummedOverTheRanksThatShareRows) {
  const testing::Whole alone = first_gradients(run_of(GetParam(), {}), 1);
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    const testing::Whole found = first_gradients(run_of(GetParam(), grid), grid.ranks());
    ASSERT_EQ(found.size(), alone.size());
    for (size_t p = 0; p < alone.size(); ++p) {
      std::vector<float> difference = found[p];
      for (size_t i = 0; i < difference.size(); ++i) difference[i] -= alone[p][i];
      EXPECT_GT(norm_of(alone[p]), 0) << "parameter " << p;
      EXPECT_LE(norm_of(difference), 1e-5 * norm_of(alone[p])) << "parameter " << p;
    }
  }
}

// Defect: the norm of the gradient omitted parameters that are divided, partial or replicated, or
// counted them twice, so that clipping depended on the layout.
TEST_P(SilentBugs, TheGradientNormDoesNotDependOnTheLayout) {
  const auto clipped = [](const Grid& grid) {
    TinyRun run = run_of(GetParam(), grid);
    run.replica.clip = 1e-2;  // so small that each step is clipped
    run.optimizer = {{"name", "sgd"}};
    run.learning_rate = 10;
    return run;
  };
  const Outcome alone = testing::train(1, clipped({}));
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    const Outcome found = testing::train(grid.ranks(), clipped(grid));
    EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
  }
}

// Defect: with two groups of one kind, ranks gathered over the wrong group, so that samples were
// mixed: [0, 1, 2, 3] became [0, 1, 0, 1].
TEST_P(SilentBugs, GathersUseTheRightGroup) {
  const auto one_each = [](const Grid& grid) {
    TinyRun run = run_of(GetParam(), grid);
    run.batch = 4;
    run.micro_batch = 1;
    return run;
  };
  const Outcome alone = testing::train(1, one_each({}));
  for (const Grid& grid :
       {Grid{.tensor = 2, .data = 4, .sp = true}, Grid{.tensor = 4, .data = 2, .sp = true}}) {
    SCOPED_TRACE(describe(grid));
    const Outcome found = testing::train(grid.ranks(), one_each(grid));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
  }
}

// Defect: if a vocabulary was padded to a multiple of the ranks, the padding words had a
// probability too. In an untrained model, each real word must have the same probability.
TEST_P(SilentBugs, PaddingWordsHaveNoProbability) {
  const double words = GetParam() == "gpt2" ? 257 : 259;
  const auto first = [](int tensor) {
    TinyRun run = run_of(GetParam(), {.tensor = tensor});
    run.steps = 1;
    return testing::train(tensor, run).losses.front();
  };
  const double alone = first(1);
  EXPECT_NEAR(alone, std::log(words), 0.1);
  for (const int tensor : {2, 4, 8}) EXPECT_NEAR(first(tensor), alone, 1e-5);
}

// Defect: ranks with different values dropped the same elements, or ranks with equal values dropped
// different elements.
TEST_P(SilentBugs, DropoutDoesNotDependOnTheRank) {
  const Outcome alone = testing::train(1, run_of(GetParam(), {}, {}, 0.5));
  const Outcome without = testing::train(1, run_of(GetParam(), {}));
  EXPECT_GT(testing::relative_difference(alone.losses, without.losses), 1e-3) << "it drops some";
  for (const Grid& grid : grids()) {
    SCOPED_TRACE(describe(grid));
    const Outcome found = testing::train(grid.ranks(), run_of(GetParam(), grid, {}, 0.5));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
  }
}

// Defect: one rank skipped an update because of an overflow that the other ranks did not detect.
TEST_P(SilentBugs, AllRanksSkipAnUpdateTogether) {
  const auto narrow = [](const Grid& grid) {
    TinyRun run = run_of(GetParam(), grid);
    run.replica.storage.dtype = DType::f16;
    run.replica.loss_scaling = LossScalerOptions{.initial_scale = 0x1p30};
    run.steps = 24;
    return run;
  };
  const auto skipped = [](const Outcome& outcome) { return std::ranges::count(outcome.norms, 0); };
  for (const int data : {1, 2}) {
    const Outcome whole = testing::train(data, narrow({.data = data}));
    EXPECT_GT(skipped(whole), 3);
    EXPECT_LT(skipped(whole), 20);
    for (const Grid& grid : grids()) {
      if (grid.data != data) continue;
      SCOPED_TRACE(describe(grid));
      const Outcome found = testing::train(grid.ranks(), narrow(grid));
      EXPECT_EQ(skipped(found), skipped(whole));
      EXPECT_LT(testing::relative_difference(found.losses, whole.losses), 1e-2);
    }
  }
}

// Packs consecutive documents into samples of 16 tokens. Some documents have one token.
class Documents : public testing::MaskedData {
 public:
  Documents() : MaskedData([](uint64_t) { return int64_t{0}; }) {}
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override {
    MaskedData::add(example, epoch, batch);
    add_starts(example, batch);
  }
  void add_validation(uint64_t example, Batch& batch) const override {
    MaskedData::add_validation(example, batch);
    add_starts(example, batch);
  }

 private:
  static void add_starts(uint64_t example, Batch& batch) {
    int32_t start = 0;
    for (int32_t at = 0; at < testing::kTinyContext; ++at) {
      if ((static_cast<uint64_t>(at) * (example + 3)) % 7 < 2) start = at;
      batch.document_starts.push_back(start);
    }
  }
};

// Defects: ranks that share the tokens of a sample attended across its documents, or dropped tokens
// at its end to make the number divisible. Samples with fewer tokens than ranks hung.
TEST_P(SilentBugs, PartsOfSamplesRespectDocuments) {
  const auto packed = [](const Grid& grid, bool masked) {
    TinyRun run = run_of(GetParam(), grid);
    if (masked) run.other_data = [] { return std::make_unique<Documents>(); };
    run.micro_batch = 1;
    run.validation_samples = 8;
    return run;
  };
  const Outcome alone = testing::train(1, packed({}, true));
  const Outcome across = testing::train(1, packed({}, false));
  EXPECT_GT(testing::relative_difference(alone.losses, across.losses), 1e-4) << "masks matter";
  for (const Grid& grid : {Grid{.context = 2}, Grid{.context = 3}, Grid{.context = 5, .zero = 1},
                           Grid{.tensor = 2, .context = 3, .sp = true}, Grid{.context = 20}}) {
    SCOPED_TRACE(describe(grid));
    const Outcome found = testing::train(grid.ranks(), packed(grid, true));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
    EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
    EXPECT_NEAR(found.validation, alone.validation, 1e-5 * alone.validation);
  }
}

}  // namespace
}  // namespace tutti::training
