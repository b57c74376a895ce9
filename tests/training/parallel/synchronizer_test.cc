// A synchronizer of one's own in a replica: local SGD, which averages values every few steps.
#include "training/parallel/synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/kernels/elementwise.h"
#include "training/snapshot.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

class LocalSgd : public Synchronizer {
 public:
  LocalSgd(ParameterStorage& storage, int64_t every)
      : storage_(storage), ranks_(storage.groups().ranks.front()), every_(every) {}

  void begin_step(const std::vector<int64_t>&) override {
    storage_.zero_whole_gradients();
    broken_.reset();
  }
  // They are parts of the mean over all ranks' samples, and become those of this rank's.
  void finish_gradients() override {
    for (size_t bucket = 0; bucket < storage_.layout().buckets.size(); ++bucket) {
      const Tensor gradients = storage_.gradients(static_cast<int>(bucket));
      scale(gradients, gradients, ranks_.size());
    }
    for (const OwnedPiece& piece : storage_.owned()) {
      if (!broken_ && !all_finite(piece.gradient)) broken_ = {piece.piece.parameter};
    }
  }
  const std::optional<BrokenGradient>& broken_gradient() const override { return broken_; }
  bool sums_gradients() const override { return false; }

  void after_update() override {
    if (++updates_ % every_ != 0) return;
    for (const OwnedPiece& piece : storage_.owned()) {
      const Tensor values = piece.updated();
      ranks_.all_reduce(values.values<float>());
      scale(values, values, 1.0 / ranks_.size());
    }
  }
  void publish_values() override {}

  void visit_state(StateVisitor& visitor) override {
    visitor.number("local_sgd.updates", updates_, visitor.step());
  }

 private:
  ParameterStorage& storage_;
  Communicator ranks_;
  int64_t every_;
  int64_t updates_ = 0;
  std::optional<BrokenGradient> broken_;
};

SynchronizerFactory averaging_every(int64_t steps) {
  return [steps](Model&, ParameterStorage& storage, const DataParallelOptions&) {
    return std::make_unique<LocalSgd>(storage, steps);
  };
}

TinyRun run_of(SynchronizerFactory synchronizer) {
  TinyRun run;
  run.replica.synchronizer = std::move(synchronizer);
  run.optimizer = {{"name", "sgd"}, {"momentum", 0}};
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

// By rank, the values after each step from `rank.done` on.
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

TEST(SynchronizerTest, AveragesAtEachStepAreSumsOfGradients) {
  const Values local = trained(run_of(averaging_every(1)));
  const Values summed = trained(run_of(nullptr));
  ASSERT_EQ(local[0].back().size(), summed[0].back().size());
  EXPECT_EQ(local[0], local[1]);
  double largest = 0;
  for (size_t i = 0; i < local[0].back().size(); ++i) {
    largest = std::max<double>(largest, std::abs(local[0].back()[i] - summed[0].back()[i]));
  }
  EXPECT_LT(largest, 1e-6);
  EXPECT_NE(summed[0].back(), summed[0].front()) << "it learns";
}

TEST(SynchronizerTest, RanksDifferBetweenAverages) {
  const Values local = trained(run_of(averaging_every(4)));
  for (size_t step = 1; step <= local[0].size(); ++step) {
    EXPECT_EQ(local[0][step - 1] == local[1][step - 1], step % 4 == 0) << "after step " << step;
  }
}

using SynchronizerState = FolderTest;

TEST_F(SynchronizerState, GoesOnBetweenTwoAverages) {
  constexpr int kSavedAt = 6;
  const TinyRun run = run_of(averaging_every(4));
  const Values expected = trained(run);
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run);
    for (int step = 0; step < kSavedAt; ++step) rank.step();
    std::optional<RunDirectory> directory;
    if (job.rank == 0) directory.emplace(path("run"), RunStart{});
    save_snapshot(rank.replica, *rank.model,
                  {.directory = directory ? &*directory : nullptr, .step = kSavedAt, .keep = 1});
  });
  run_ranks(kRanks, [&](const Job& job) {
    TinyRank rank(job, run);
    load_snapshot(rank.replica, *rank.model, path("run"));
    rank.skip(kSavedAt);
    const auto& after = expected[static_cast<size_t>(job.rank)];
    EXPECT_EQ(values_of(rank.replica), after[kSavedAt - 1]);
    for (uint64_t step = kSavedAt; step < run.steps; ++step) {
      rank.step();
      EXPECT_EQ(values_of(rank.replica), after[step]) << "after step " << step + 1;
    }
  });
}

TEST(SynchronizerTest, TakesNoCompressionBesideIt) {
  TinyRun run = run_of(averaging_every(1));
  run.powersgd.emplace();
  // Whoever throws first ends the other, which may not have come to the check.
  const auto errors = run_ranks_catching(2, [&](const Job& job) { TinyRank rank(job, run); });
  for (const auto& error : errors) ASSERT_TRUE(error);
  EXPECT_THAT(cat(errors[0]->what(), errors[1]->what()),
              HasSubstr("gradients cannot be compressed beside a synchronizer of one's own"));
}

}  // namespace
}  // namespace tutti::training
