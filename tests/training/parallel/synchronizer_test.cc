// Tests local SGD, which averages values every few steps, in two forms: the library's option, and a
// user-defined synchronizer.
#include "training/parallel/synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/parallel/averaging/local_sgd.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

// Returns local SGD as a user-defined synchronizer, without the library's options.
SynchronizerFactory averaging_every(int64_t steps) {
  return [steps](Model&, ParameterStorage& storage, const DataParallelOptions&) {
    return std::make_unique<LocalSgd>(storage, averages_every(steps));
  };
}

// Averages values every `every` steps; with 0, sums gradients in each step.
TinyRun run_of(int64_t every, double momentum = 0) {
  TinyRun run;
  run.replica.sync = averages_every(every);
  run.optimizer = {{"name", "sgd"}, {"momentum", momentum}};
  run.learning_rate = 0.1;
  run.steps = 8;
  return run;
}

std::vector<float> values_of(const Replica& replica) {
  std::vector<float> all;
  for (const OwnedPiece& piece : replica.owned()) {
    const auto values = piece.updated().values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Indexed by rank, then by step from `rank.done` on: the values after the step.
using Values = std::vector<std::vector<std::vector<float>>>;
constexpr int kRanks = 2;

Values trained(const TinyRun& run) {
  Values values(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (uint64_t step = 0; step < run.steps; ++step) {
      rank.step();
      values[static_cast<size_t>(job.rank)].push_back(values_of(rank.replica));
    }
  });
  return values;
}

// Returns the largest difference between values of rank 0 after the last step.
double difference(const Values& a, const Values& b) {
  EXPECT_EQ(a[0].back().size(), b[0].back().size());
  double largest = 0;
  for (size_t i = 0; i < a[0].back().size(); ++i) {
    largest = std::max<double>(largest, std::abs(a[0].back()[i] - b[0].back()[i]));
  }
  return largest;
}

TEST(LocalSgdTest, AveragingInEachStepEqualsSummingGradients) {
  const Values averaged = trained(run_of(1));
  const Values summed = trained(run_of(0));
  EXPECT_EQ(averaged[0], averaged[1]);
  EXPECT_LT(difference(averaged, summed), 1e-6);
  EXPECT_GT(difference(averaged, {{averaged[0].front()}}), 1e-3) << "it learns";
}

TEST(LocalSgdTest, RanksDifferBetweenAverages) {
  const Values local = trained(run_of(4));
  for (size_t step = 1; step <= local[0].size(); ++step) {
    EXPECT_EQ(local[0][step - 1] == local[1][step - 1], step % 4 == 0) << "after step " << step;
  }
}

// The masters are averaged; 16-bit values are then rounded from them.
TEST(LocalSgdTest, AveragesMasters) {
  TinyRun run = run_of(4);
  run.replica.storage.dtype = DType::bf16;
  const Values wide = trained(run_of(4));
  const Values narrow = trained(run);
  EXPECT_EQ(narrow[0].back(), narrow[1].back());
  EXPECT_LT(difference(narrow, wide), 0.01);
}

TEST(LocalSgdTest, SendsOnlyInEachFourthStep) {
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run_of(4));
    double before = rank.replica.bytes_sent();
    for (int step = 1; step <= 8; ++step) {
      rank.step();
      const double after = rank.replica.bytes_sent();
      EXPECT_EQ(after - before, step % 4 == 0 ? rank.replica.memory().storage.parameters : 0.0);
      before = after;
    }
  });
}

// If one rank has a non-finite gradient, all ranks stop.
TEST(LocalSgdTest, OneRanksBrokenGradientStopsAll) {
  const auto errors = run_ranks_catching(kRanks, [&](const Job& job) {
    TinyRank rank(job, run_of(4));
    rank.step();
    if (job.rank == 1) {
      rank.replica.owned().front().updated().values<float>()[0] =
          std::numeric_limits<float>::infinity();
    }
    rank.step();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("step 2: "), HasSubstr("on rank 1"), HasSubstr("is not finite")));
  }
}

void save_in(const std::string& directory, TinyRank& rank, const Job& job) {
  std::optional<RunDirectory> run;
  if (job.rank == 0) run.emplace(directory, RunStart{});
  save_snapshot(rank.replica, *rank.model,
                {.directory = run ? &*run : nullptr, .step = rank.done, .keep = 1});
}

constexpr int kSavedAt = 6;

using LocalSgdState = FolderTest;

// With momentum, each rank also has its own optimizer state.
TEST_F(LocalSgdState, ResumesBetweenTwoAverages) {
  const TinyRun run = run_of(4, 0.5);
  const Values expected = trained(run);
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (int step = 0; step < kSavedAt; ++step) rank.step();
    save_in(path("run"), rank, job);
  });
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run);
    load_snapshot(rank.replica, *rank.model, Checkpoint::open(path("run")));
    rank.skip(kSavedAt);
    const auto& after = expected[static_cast<size_t>(job.rank)];
    EXPECT_EQ(values_of(rank.replica), after[kSavedAt - 1]);
    for (uint64_t step = kSavedAt; step < run.steps; ++step) {
      rank.step();
      EXPECT_EQ(values_of(rank.replica), after[step]) << "after step " << step + 1;
    }
  });
}

// The values that are validated, and saved under the model's own names, are the mean of the ranks'
// values. The ranks' own values are not changed.
TEST_F(LocalSgdState, TheMeanIsValidatedAndSaved) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string directory = path(std::string(name(dtype)));
    TinyRun run = run_of(1000, 0.5);
    run.replica.storage.dtype = dtype;
    run.validation_samples = 8;
    Values values(kRanks);
    std::vector<double> told(kRanks);
    run_ranks(kRanks, [&](const Job& job) {
      TinyRank rank(job, run);
      for (int step = 0; step < kSavedAt; ++step) rank.step();
      const std::vector<float> own = values_of(rank.replica);
      told[static_cast<size_t>(job.rank)] = rank.evaluate().loss;
      EXPECT_EQ(values_of(rank.replica), own);
      save_in(directory, rank, job);
      EXPECT_EQ(values_of(rank.replica), own);
      values[static_cast<size_t>(job.rank)].push_back(own);
    });
    EXPECT_EQ(told[0], told[1]);
    ASSERT_NE(values[0], values[1]);

    run_ranks(1, [&](const Job& job) {
      TinyRun summed = run;
      summed.replica.sync = {};
      TinyRank rank(job, summed);
      load_snapshot(rank.replica, *rank.model, Checkpoint::open(directory));
      const std::vector<float> saved = values_of(rank.replica);
      for (size_t i = 0; i < saved.size(); ++i) {
        ASSERT_NEAR(saved[i], (values[0][0][i] + values[1][0][i]) / 2, 1e-6);
      }
      EXPECT_NEAR(rank.evaluate().loss, told[0], 1e-6);
    });
  }
}

TEST_F(LocalSgdState, AnotherNumberOfRanksBeginsWithTheMean) {
  const TinyRun run = run_of(4);
  Values saved(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (int step = 0; step < kSavedAt; ++step) rank.step();
    saved[static_cast<size_t>(job.rank)].push_back(values_of(rank.replica));
    save_in(path("run"), rank, job);
  });
  run_ranks(3, [&](const Job& job) {
    TinyRank rank(job, run);
    load_snapshot(rank.replica, *rank.model, Checkpoint::open(path("run")));
    const std::vector<float> values = values_of(rank.replica);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], (saved[0][0][i] + saved[1][0][i]) / 2, 1e-6);
    }
  });
}

// A run that summed gradients can continue with averages, because its ranks have equal values.
TEST_F(LocalSgdState, ContinuesARunOfSummedGradients) {
  std::vector<std::vector<float>> saved(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run_of(0));
    rank.step();
    save_in(path("run"), rank, job);
    saved[static_cast<size_t>(job.rank)] = values_of(rank.replica);
  });
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run_of(4));
    load_snapshot(rank.replica, *rank.model, Checkpoint::open(path("run")));
    EXPECT_EQ(values_of(rank.replica), saved[static_cast<size_t>(job.rank)]);
  });
}

// Returns the messages of both ranks, joined. The rank that throws first aborts the other, possibly
// before its check.
std::string refusal_of(const TinyRun& run) {
  const auto errors = run_ranks_catching(kRanks, [&](const Job& job) { TinyRank rank(job, run); });
  std::string all;
  for (const auto& error : errors) all += error ? error->what() : "no error";
  return all;
}

TEST(LocalSgdTest, RefusesIncompatibleOptions) {
  const auto with = [](const std::function<void(TinyRun&)>& change) {
    TinyRun run = run_of(4);
    change(run);
    return refusal_of(run);
  };
  EXPECT_THAT(with([](TinyRun& run) { run.replica.storage.stage = 1; }),
              AllOf(HasSubstr("does not support ZeRO stage 1"), HasSubstr("or --zero")));
  EXPECT_THAT(
      with([](TinyRun& run) { run.mesh.context = 2; }),
      HasSubstr("does not support gradients that are reduced over the ranks of one worker"));
  EXPECT_THAT(with([](TinyRun& run) { run.powersgd.emplace(); }),
              HasSubstr("compression requires gradients that are all-reduced"));
  EXPECT_THAT(with([](TinyRun& run) { run.replica.synchronizer = averaging_every(4); }),
              HasSubstr("does not support a custom synchronizer"));
  EXPECT_THAT(with([](TinyRun& run) {
                run.replica.storage.dtype = DType::bf16;
                run.replica.stochastic_rounding = true;
              }),
              HasSubstr("does not support bf16 parameters without master weights"));
}

TEST(SynchronizerTest, UserDefinedSynchronizersReplaceTheLibrarys) {
  TinyRun run = run_of(0);
  run.replica.synchronizer = averaging_every(4);
  EXPECT_EQ(trained(run), trained(run_of(4)));
}

TEST(SynchronizerTest, RefusesCompression) {
  TinyRun run = run_of(0);
  run.replica.synchronizer = averaging_every(1);
  run.powersgd.emplace();
  EXPECT_THAT(refusal_of(run),
              HasSubstr("compression is not available with a custom synchronizer"));
}

}  // namespace
}  // namespace tutti::training
