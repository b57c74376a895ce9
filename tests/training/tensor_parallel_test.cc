// Tests that a model divided over the tensor axis trains as on one rank, for any mesh and ZeRO
// stage. In deterministic mode, the bits must be equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/meshes.h"
#include "tests/training/support/saved_tensors.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/models/gpt.h"
#include "training/run/parameter_values.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using testing::decoder;
using testing::describe;
using testing::Deterministic;
using testing::Grid;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_of;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;

class TensorParallel : public FolderTest {
 protected:
  const Deterministic deterministic_;
};

// The parameters are the kind of model, and whether tensor ranks share rows between layers. If they
// do, the gradients of normalizations are summed over the tensor axis too, as a separate group of
// parameters.
class Meshes : public TensorParallel,
               public ::testing::WithParamInterface<std::tuple<std::string, bool>> {
 protected:
  static std::string kind() { return std::get<0>(GetParam()); }
  static Grid with_rows(Grid grid) {
    grid.sp = std::get<1>(GetParam());
    return grid;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Meshes,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "few keys",
                                                              "experts"),
                                            ::testing::Bool()));

TEST_P(Meshes, EveryMeshTrainsTheSameModelInEveryStageOfZero) {
  const Outcome alone = testing::train(1, run_of(kind(), {}));
  for (const int tensor : {2, 4}) {
    for (const int data : {1, 2}) {
      std::optional<Outcome> first;
      for (int zero = 0; zero <= 3; ++zero) {
        const Grid grid = with_rows({.tensor = tensor, .data = data, .zero = zero});
        SCOPED_TRACE(describe(grid));
        const Outcome outcome = testing::train(grid.ranks(), run_of(kind(), grid));
        if (!first) first = outcome;
        EXPECT_EQ(testing::difference(outcome, *first), "");
        EXPECT_LT(testing::relative_difference(outcome.losses, alone.losses), 1e-5);
        EXPECT_LT(testing::relative_difference(outcome.norms, alone.norms), 1e-5);
      }
    }
  }
}

TEST_P(Meshes, WorkWithAPipelineAndOtherOptimizers) {
  for (const std::string name : {"adamw", "lamb", "lars"}) {
    const auto with_optimizer = [&](const Grid& grid) {
      TinyRun run = run_of(kind(), grid);
      run.optimizer = {{"name", name}};
      if (name == "lars") run.learning_rate = 0.1;
      return run;
    };
    const Outcome alone = testing::train(1, with_optimizer({}));
    for (const Grid& grid :
         {Grid{.tensor = 2, .stages = 2}, Grid{.tensor = 2, .stages = 2, .zero = 1},
          Grid{.tensor = 2, .data = 2, .stages = 2, .zero = 3}}) {
      SCOPED_TRACE(describe(with_rows(grid)));
      const Outcome outcome = testing::train(grid.ranks(), with_optimizer(with_rows(grid)));
      EXPECT_LT(testing::relative_difference(outcome.losses, alone.losses), 1e-5);
      EXPECT_LT(testing::relative_difference(outcome.norms, alone.norms), 1e-5);
    }
  }
}

// Dropout must be the same on ranks with equal values, and differ between ranks with different
// values.
TEST_P(Meshes, TrainTheSameModelWithDropout) {
  const Outcome alone = testing::train(1, run_of(kind(), {}, {}, 0.2));
  for (const ComputeOptions& compute :
       {ComputeOptions{}, ComputeOptions{.selective_recomputation = true},
        ComputeOptions{.loss_chunk = 7}}) {
    for (const bool recomputes : {false, true}) {
      TinyRun run = run_of(kind(), with_rows({.tensor = 4}), compute, 0.2);
      run.replica.runner.checkpoint_units = recomputes;
      const Outcome cut = testing::train(4, run);
      EXPECT_LT(testing::relative_difference(cut.losses, alone.losses), 1e-5);
      EXPECT_LT(testing::relative_difference(cut.norms, alone.norms), 1e-5);
    }
  }
}

// Each rank saves a part of an activation. When gathered, the parts must equal the whole
// activation.
TEST_P(Meshes, KeepActivationsInParts) {
  for (const int stages : {1, 2}) {
    TinyRun run = run_of(kind(), with_rows({.tensor = 4, .stages = stages}), {}, 0.2);
    run.replica.runner.checkpoint_units = true;
    const Outcome whole = testing::train(4 * stages, run);
    run.replica.runner.partition_checkpoints = true;
    EXPECT_EQ(testing::difference(testing::train(4 * stages, run), whole), "");
  }
}

// The micro-batch is so large that blocks compute it in parts.
TEST_F(TensorParallel, SumsOverlapWithComputation) {
  const auto run = [](int tensor, bool sp, bool overlaps, bool selective = false, int stages = 1) {
    TinyRun run;
    run.mesh = {.tensor = tensor, .data = 1, .pipeline = stages};
    run.model.context = 128;
    run.other_model = [=](const MeshPlace& place) {
      return std::make_unique<Gpt>(GptConfig{.layers = 1,
                                             .heads = 4,
                                             .width = 256,
                                             .context = 128,
                                             .dropout = 0.1,
                                             .compute = {.selective_recomputation = selective,
                                                         .sequence_parallel = sp,
                                                         .overlaps_sums = overlaps}},
                                   place);
    };
    run.replica.pipeline.schedule = stages > 1 ? "zb-h1" : "1f1b";
    run.replica.runner.checkpoint_units = !sp && !selective && stages == 1;
    run.batch = run.micro_batch = 7;
    run.steps = 3;
    return run;
  };
  const Outcome alone = testing::train(1, run(1, false, true));
  for (const bool sp : {false, true}) {
    for (const bool overlaps : {false, true}) {
      for (const auto& [selective, stages] : {std::pair(false, 1), {true, 1}, {false, 2}}) {
        SCOPED_TRACE(cat(sp, overlaps, selective, stages));
        const Outcome found = testing::train(2 * stages, run(2, sp, overlaps, selective, stages));
        EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
        EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
      }
    }
  }
}

TEST_F(TensorParallel, InitialValuesAreTheSameBits) {
  const auto still = [](const Grid& grid) {
    TinyRun run = run_of("gpt2", grid);
    run.steps = 1;
    run.learning_rate = 0;
    return run;
  };
  const Outcome alone = testing::train(1, still({}));
  for (const int tensor : {2, 4}) {
    EXPECT_EQ(testing::train(tensor, still({.tensor = tensor, .zero = 1})).parameters,
              alone.parameters);
  }
}

TEST_F(TensorParallel, HeadsMustDivide) {
  const auto refusal = [](int tensor, const std::string& kind) {
    try {
      decoder(kind, {.sizes = {tensor, 1, 1, 1, 1, 1}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(4, "gpt2"), "");
  EXPECT_EQ(refusal(8, "few keys"), "") << "heads of keys need not";
  EXPECT_THAT(refusal(3, "gpt2"), HasSubstr("8 heads cannot be sharded over 3 ranks"));
  EXPECT_THAT(refusal(3, "gpt2"), HasSubstr("the nearest number of ranks is 2"));
}

TEST_F(TensorParallel, EachRankHasSomeOfTheHiddenValuesAndTheVocabulary) {
  const auto refusal = [](int64_t hidden, int64_t vocabulary) {
    try {
      Gpt(GptConfig{.heads = 8, .vocabulary = vocabulary, .hidden = hidden},
          {.sizes = {4, 1, 1, 1, 1, 1}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(5, 7), "");
  EXPECT_THAT(refusal(3, 256), HasSubstr("3 hidden values cannot be sharded over 4 ranks"));
  EXPECT_THAT(refusal(64, 3), HasSubstr("vocabulary entries cannot be sharded over 4 ranks"));
}

// --- the same bits ---

// One rank adds its parts in the order of the same tree in which tensor ranks add theirs.
class Bits : public TensorParallel,
             public ::testing::WithParamInterface<std::tuple<std::string, DType>> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Bits,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "few keys",
                                                              "experts"),
                                            ::testing::Values(DType::f32, DType::bf16)));

TEST_P(Bits, DoNotDependOnTheNumberOfRanks) {
  const auto& [kind, dtype] = GetParam();
  const auto run = [&](const Grid& grid, bool recomputes = false) {
    TinyRun run = run_of(kind, grid, {.selective_recomputation = recomputes, .slices = 8}, 0.1);
    run.replica.storage.dtype = dtype;
    run.replica.runner.checkpoint_units = recomputes;
    run.micro_batch = 2;
    run.steps = 4;
    return run;
  };
  for (const int data : {1, 2}) {
    const Outcome alone = testing::train(data, run({.data = data}));
    for (const Grid& grid :
         {Grid{.tensor = 2}, Grid{.tensor = 2, .sp = true, .experts = 2},
          Grid{.tensor = 4, .zero = 2, .experts = 4}, Grid{.tensor = 4, .zero = 3, .sp = true},
          Grid{.tensor = 2, .stages = 2, .experts = 2},
          Grid{.tensor = 2, .stages = 2, .zero = 1, .sp = true}}) {
      Grid all = grid;
      all.data = data;
      for (const bool recomputes : {false, true}) {
        SCOPED_TRACE(cat(describe(all), recomputes ? ", computed anew" : ""));
        const Outcome found = testing::train(all.ranks(), run(all, recomputes));
        EXPECT_EQ(found.losses, alone.losses);
        EXPECT_EQ(found.norms, alone.norms);
        EXPECT_EQ(found.parameters, alone.parameters);
        EXPECT_EQ(found.states, alone.states);
      }
    }
  }
  const Outcome alone = testing::train(1, run({}));
  const Outcome eight = testing::train(8, run({.tensor = 8, .sp = true}));
  EXPECT_EQ(testing::difference(eight, alone), "");
}

// Gradients of micro-batches are summed by one tree, whether the micro-batches are on different
// data ranks, run one after another, or use an expert of another rank.
class BitsOfAStep : public TensorParallel, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, BitsOfAStep, ::testing::Values("gpt2", "llama", "experts"));

TEST_P(BitsOfAStep, DoNotDependOnTheRanksOfTheMicroBatches) {
  const auto run = [&](const Grid& grid, const std::string& schedule = "1f1b") {
    TinyRun run = run_of(GetParam(), grid, {.slices = 8}, 0.1);
    run.replica.pipeline.schedule = schedule;
    run.micro_batch = 1;
    run.steps = 4;
    return run;
  };
  const Outcome alone = testing::train(1, run({}));
  for (const Grid& grid :
       {Grid{.data = 2, .experts = 2}, Grid{.data = 4, .zero = 2}, Grid{.data = 4, .experts = 4},
        Grid{.data = 8, .zero = 3}, Grid{.data = 8, .zero = 1, .experts = 4},
        Grid{.tensor = 2, .data = 4, .sp = true, .experts = 4},
        Grid{.tensor = 2, .data = 2, .zero = 3, .experts = 4},
        Grid{.data = 2, .stages = 2, .zero = 2, .experts = 2}}) {
    SCOPED_TRACE(describe(grid));
    EXPECT_EQ(testing::difference(testing::train(grid.ranks(), run(grid)), alone), "");
  }
  for (const char* schedule : {"gpipe", "zb-h1", "interleaved"}) {
    SCOPED_TRACE(schedule);
    const Grid grid{.data = 4, .stages = 2, .experts = 2};
    EXPECT_EQ(testing::difference(testing::train(grid.ranks(), run(grid, schedule)), alone), "");
  }
}

// If each rank has one slice, its matrices have no gaps between rows. On a single rank with all
// slices, they have gaps.
TEST_F(TensorParallel, BitsDoNotDependOnGapsInMatrices) {
  for (const int64_t width : {32, 320}) {
    SCOPED_TRACE(width);
    const auto run = [&](int tensor) {
      constexpr int64_t kContext = 8;
      TinyRun run = run_of("gpt2", {.tensor = tensor}, {.slices = 8});
      run.model.context = kContext;
      run.other_model = [&](const MeshPlace& place) {
        return std::make_unique<Gpt>(GptConfig{.layers = 1,
                                               .heads = 8,
                                               .width = width,
                                               .context = kContext,
                                               .vocabulary = 256,
                                               .hidden = width,
                                               .compute = {.slices = 8}},
                                     place);
      };
      run.micro_batch = 1;
      run.steps = 3;
      return run;
    };
    const Outcome alone = testing::train(1, run(1));
    for (const int tensor : {2, 8}) {
      EXPECT_EQ(testing::difference(testing::train(tensor, run(tensor)), alone), "") << tensor;
    }
  }
}

// --- checkpoints ---

constexpr int64_t kSavedAt = 3;

std::vector<double> next_losses(TinyRank& rank) {
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) losses.push_back(rank.step().loss);
  return losses;
}

void save_in(const std::string& directory, TinyRank& rank, const Job& job) {
  std::optional<RunDirectory> run;
  if (job.rank == 0) run.emplace(directory, RunStart{});
  save_snapshot(rank.replica, *rank.model,
                {.directory = run ? &*run : nullptr, .step = kSavedAt, .keep = 1});
}

TEST_P(Meshes, EveryMeshResumesAnyOthersCheckpoint) {
  int count = 0;
  for (const Grid& from : {Grid{.tensor = 2}, Grid{.tensor = 2, .data = 2, .zero = 1, .experts = 4},
                           Grid{.data = 2, .experts = 2}}) {
    const std::string saved = path(cat("saved-", count));
    std::vector<double> expected;
    run_ranks(from.ranks(), [&](const Job& job) {
      TinyRank rank(job, run_of(kind(), with_rows(from)));
      while (rank.done < kSavedAt) rank.step();
      save_in(saved, rank, job);
      const std::vector<double> losses = next_losses(rank);
      if (job.rank == 0) expected = losses;
    });
    const auto original = testing::saved_tensors(Checkpoint::open(saved));
    for (const Grid& to : {Grid{}, Grid{.tensor = 2}, Grid{.tensor = 4, .experts = 4},
                           Grid{.data = 2, .zero = 2, .experts = 2},
                           Grid{.tensor = 4, .data = 2, .zero = 3, .experts = 2},
                           Grid{.tensor = 2, .stages = 2, .zero = 1}}) {
      SCOPED_TRACE(cat("from ", describe(from), " to ", describe(to)));
      const std::string again = path(cat("again-", count++));
      run_ranks(to.ranks(), [&](const Job& job) {
        TinyRank rank(job, run_of(kind(), with_rows(to)));
        load_snapshot(rank.replica, *rank.model, Checkpoint::open(saved));
        save_in(again, rank, job);
        rank.skip(kSavedAt);
        const std::vector<double> losses = next_losses(rank);
        EXPECT_LT(testing::relative_difference(losses, expected), 1e-5);
        if (to.tensor == from.tensor && to.data == from.data && to.experts == from.experts) {
          EXPECT_EQ(losses, expected);
        }
      });
      const Checkpoint checkpoint = Checkpoint::open(again);
      checkpoint.verify();
      EXPECT_TRUE(testing::saved_tensors(checkpoint) == original) << "not a bit is lost";
    }
  }
}

// --- parameters between steps ---

TEST_F(TensorParallel, ParametersAreReadAndWrittenWhole) {
  for (const Grid& grid : {Grid{.tensor = 2}, Grid{.tensor = 2, .data = 2, .zero = 1},
                           Grid{.tensor = 2, .data = 2, .zero = 3}}) {
    SCOPED_TRACE(describe(grid));
    run_ranks(grid.ranks(), [&](const Job& job) {
      TinyRank rank(job, run_of("gpt2", grid));
      ParameterValues values(rank.replica, *rank.model);
      for (int parameter = 0; parameter < std::ssize(values.specs()); ++parameter) {
        const ParameterSpec& spec = values.specs()[static_cast<size_t>(parameter)];
        const auto count = static_cast<size_t>(spec.count());
        std::vector<float> expected(count), found(count);
        draw(spec.initial, rank.run.replica.seed, spec.stream(), 0, expected);
        values.read(parameter, found);
        EXPECT_EQ(found, expected) << spec.name;
        EXPECT_EQ(values.in_place(parameter) != nullptr,
                  grid.zero < 3 && spec.placement.cuts.empty());
        for (size_t i = 0; i < count; ++i) expected[i] = static_cast<float>(i) / 1024;
        values.write(parameter, expected);
        values.read(parameter, found);
        EXPECT_EQ(found, expected) << spec.name;
      }
    });
  }
}

TEST_F(TensorParallel, AModelForAnotherMeshIsRefused) {
  for (const auto& error : tutti::testing::run_ranks_catching(2, [](const Job& job) {
         TinyRun run = run_of("gpt2", {.tensor = 2});
         run.other_model = [](MeshPlace place) {
           place.sizes[static_cast<size_t>(Axis::tensor)] = 4;
           return decoder("gpt2", place);
         };
         TinyRank(job, run);
       })) {
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("is sharded for a different mesh"),
              std::string::npos);
  }
}

// All ranks detect the error. A rank that waits for a rank that has already left reports this
// instead.
TEST_F(TensorParallel, MuonRefusesPartsOfMatrices) {
  for (const int zero : {0, 1}) {
    int refusals = 0;
    for (const auto& error : tutti::testing::run_ranks_catching(2, [&](const Job& job) {
           TinyRun run = run_of("gpt2", {.tensor = 2, .zero = zero});
           run.optimizer = {{"name", "muon"}};
           TinyRank(job, run).step();
         })) {
      ASSERT_TRUE(error);
      refusals += std::string(error->what()).find("whole matrices") != std::string::npos;
    }
    EXPECT_GE(refusals, 1);
  }
}

TEST_F(TensorParallel, GradientsAreNotCompressed) {
  for (const auto& error : tutti::testing::run_ranks_catching(2, [](const Job& job) {
         TinyRun run = run_of("gpt2", {.tensor = 2});
         run.powersgd = PowerSgdOptions{};
         TinyRank(job, run);
       })) {
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("compression"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::training
