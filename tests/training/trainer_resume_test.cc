// Tests that runs resume from their checkpoints, on ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/saved_tensors.h"
#include "tests/training/support/tiny_run.h"
#include "tests/training/support/trained_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/run_directory.h"
#include "training/models/gpt.h"
#include "training/run/snapshot.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using ::testing::ElementsAre;
using testing::expect_refused;
using testing::OnStep;
using testing::relative_difference;
using ::testing::SizeIs;
using testing::train_as_rank;
using testing::train_on;
using testing::trained_options;
using testing::TrainedRun;
using tutti::testing::run_ranks;

class Checkpoints : public FolderTest {
 protected:
  // Returns the tensors of the latest checkpoint.
  std::map<std::string, std::vector<float>> tensors(const std::string& directory) const {
    return testing::saved_tensors(Checkpoint::open(path(directory)));
  }

  // Trains on two ranks. Interrupts the run at step 7 of 10, and resumes it from step 5.
  void expect_to_resume(const TrainOptions& options,
                        const GptConfig& model = testing::tiny_gpt()) const {
    const auto train_as = [&](const TrainOptions& how, const OnStep& on_step = {}) {
      TrainedRun first;
      run_ranks(2, [&](const Job& job) {
        const TrainedRun outcome = train_as_rank(job, how, on_step, model);
        if (job.rank == 0) first = outcome;
      });
      return first;
    };
    const TrainedRun whole = train_as(saving(options, "whole"));

    TrainOptions cut = saving(options, "cut");
    cut.checkpoint_every = 5;
    EXPECT_THROW(train_as(cut,
                          [](const StepReport& report) {
                            if (report.step == 7) throw Error(ErrorCode::system, "power cut");
                          }),
                 Error);
    cut.resume = true;
    const TrainedRun resumed = train_as(cut);
    EXPECT_EQ(resumed.resumed_at, 5u);
    EXPECT_THAT(resumed.steps, ElementsAre(6, 7, 8, 9, 10));
    EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
    EXPECT_EQ(resumed.validation, whole.validation);
    EXPECT_TRUE(tensors("cut") == tensors("whole"));
  }

  TrainOptions saving(TrainOptions options, const std::string& directory) const {
    options.checkpoint = path(directory);
    return options;
  }

  const Deterministic deterministic_;
};

class Stages : public Checkpoints,
               public ::testing::WithParamInterface<std::tuple<int, DType, double>> {};

INSTANTIATE_TEST_SUITE_P(Zero, Stages,
                         ::testing::Values(std::tuple(0, DType::f32, 0.0),
                                           std::tuple(1, DType::bf16, 0.1),
                                           std::tuple(2, DType::f16, 0.0),
                                           std::tuple(3, DType::f32, 0.1),
                                           std::tuple(3, DType::f16, 0.1)));

TEST_P(Stages, AnInterruptedRunResumesToTheSameBits) {
  const auto [stage, dtype, dropout] = GetParam();
  GptConfig model = testing::tiny_gpt();
  model.dropout = dropout;
  expect_to_resume(trained_options(10, stage, dtype), model);
}

class RoundedStages : public Checkpoints, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Zero, RoundedStages, ::testing::Values(0, 1, 3));

TEST_P(RoundedStages, ARunWithoutMastersResumesToTheSameBits) {
  TrainOptions options = trained_options(10, GetParam(), DType::bf16);
  options.replica.stochastic_rounding = true;
  expect_to_resume(options);
  const Checkpoint checkpoint = Checkpoint::open(path("whole"));
  EXPECT_EQ(checkpoint.find("model.wte.weight")->dtype, DType::bf16);
}

class OtherStates : public Checkpoints, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, OtherStates,
                         ::testing::Values("adamw8bit", "adafactor", "soap"),
                         [](const auto& info) { return std::string(info.param); });

// The optimizer states are codes and scales, or states of whole parameters.
TEST_P(OtherStates, ARunResumesToTheSameBitsInAnyStage) {
  const Deterministic deterministic;
  TrainOptions options = trained_options(10, 2);
  options.optimizer = {{"name", GetParam()}};
  expect_to_resume(options);
  const Checkpoint checkpoint = Checkpoint::open(path("whole"));
  if (GetParam() == std::string("adamw8bit")) {
    EXPECT_EQ(checkpoint.find("optimizer.exp_avg.wte.weight")->dtype, DType::u8);
    EXPECT_THAT(checkpoint.find("optimizer.exp_avg_sq_absmax.wte.weight")->shape,
                ElementsAre(256 * 32 / 256));
    EXPECT_EQ(checkpoint.find("optimizer.exp_avg.ln_f.weight")->dtype, DType::f32);
  } else if (GetParam() == std::string("soap")) {
    EXPECT_THAT(checkpoint.find("optimizer.basis_1.wte.weight")->shape, ElementsAre(32, 32));
  } else {
    EXPECT_THAT(checkpoint.find("optimizer.exp_avg_sq_row.wte.weight")->shape, ElementsAre(256));
  }

  options.schedule.decay = LearningRateSchedule::Decay::constant;
  TrainOptions longer = options;
  longer.samples = 15 * testing::kTrainedBatch;
  const TrainedRun expected = train_on(2, longer);
  train_on(2, saving(options, "ten"));
  for (const int stage : {0, 1, 3}) {
    const std::string copy = cat("stage-", stage);
    std::filesystem::copy(path("ten"), path(copy), std::filesystem::copy_options::recursive);
    TrainOptions more = saving(longer, copy);
    more.replica.storage.stage = stage;
    more.resume = true;
    EXPECT_EQ(train_on(2, more).losses,
              std::vector<double>(expected.losses.begin() + 10, expected.losses.end()));
  }
}

class CompressedTypes : public Checkpoints, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, CompressedTypes, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(CompressedTypes, ACompressedRunResumesToTheSameBits) {
  TrainOptions options = trained_options(10, 0, GetParam());
  options.replica.stochastic_rounding = GetParam() == DType::bf16;
  options.compression = Compression::powersgd;
  expect_to_resume(options);
  EXPECT_TRUE(tensors("whole").contains("powersgd.error.wte.weight"));
}

TEST_F(Checkpoints, ARunWithErrorFeedbackResumesToTheSameBits) {
  for (const auto& [compression, name] :
       std::vector<std::pair<Compression, std::string>>{{Compression::mx8, "mx8"},
                                                        {Compression::mx4, "mx4"},
                                                        {Compression::int8, "int8"},
                                                        {Compression::sign, "sign"},
                                                        {Compression::topk, "topk"},
                                                        {Compression::onebit_adam, "sign"}}) {
    SCOPED_TRACE(name);
    TrainOptions options = trained_options(10, 0);
    options.compression = compression;
    options.compression_fraction = 0.1;
    options.compression_warmup = 4;
    options.compression_only = compression == Compression::mx4 ? "wte*,*.bias" : "*";
    expect_to_resume(options);
    EXPECT_TRUE(tensors("whole").contains(name + ".error.wte.weight"));
    for (const char* directory : {"whole", "cut"}) std::filesystem::remove_all(path(directory));
  }
}

class FactorTypes : public Checkpoints, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, FactorTypes, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(FactorTypes, ARunWhoseGradientsAreSentAsFactorsResumesToTheSameBits) {
  settings().set("TUTTI_DETERMINISTIC", "0");
  TrainOptions options = trained_options(10, GetParam() == DType::f32 ? 1 : 0, GetParam());
  options.replica.factors.layers = FactorLayers::all;
  expect_to_resume(options);
}

// At step 5, the ranks have different values and momenta.
TEST_F(Checkpoints, ARunOfLocalStepsResumesToTheSameBits) {
  TrainOptions options = trained_options(10, 0);
  options.replica.sync = averages_every(4);
  expect_to_resume(options);
  EXPECT_TRUE(tensors("whole").contains("own.optimizer.exp_avg.wte.weight"));
}

// Collects the state of a replica: the values that are equal on all ranks, and those of this rank
// alone.
class Rows : public StateVisitor {
 public:
  int64_t step() const override { return 0; }
  bool saves() const override { return true; }
  bool has(const std::string&) const override { return true; }
  void number(const std::string&, double&, double) override {}
  void number(const std::string&, int64_t&, int64_t) override {}
  void pieces(const std::string&, const ValuesOf&) override {}
  void blocks(const std::string&, int64_t, const ValuesOf&) override {}
  void whole(const std::string&, int, const std::vector<int64_t>&, Tensor) override {}
  void row(const std::string& name, Tensor values, RowKind kind) override {
    const auto all = values.values<float>();
    (kind == RowKind::same ? alike : own)[name].assign(all.begin(), all.end());
  }

  std::map<std::string, std::vector<float>> alike, own;
};

// PowerSGD stores an error on each rank, and only their sum matters. A different number of ranks
// therefore divides this sum.
TEST_F(Checkpoints, OtherRanksShareTheErrorsOfCompression) {
  testing::TinyRun run;
  run.powersgd = PowerSgdOptions{.rank = 2};
  run_ranks(2, [&](const Job& job) {
    testing::TinyRank rank(job, run);
    for (int step = 0; step < 3; ++step) rank.step();
    std::optional<RunDirectory> directory;
    if (job.rank == 0) directory.emplace(path("two"), RunStart{}).begin();
    save_snapshot(rank.replica, *rank.model,
                  {.directory = directory ? &*directory : nullptr, .step = 3});
  });
  const auto saved = tensors("two");
  std::map<std::string, std::vector<double>> sums;
  std::mutex mutex;
  run_ranks(3, [&](const Job& job) {
    testing::TinyRank rank(job, run);
    load_snapshot(rank.replica, *rank.model, Checkpoint::open(path("two")));
    Rows rows;
    rank.replica.visit_state(rows);
    const std::scoped_lock lock(mutex);
    for (const auto& [name, values] : rows.alike) EXPECT_EQ(saved.at(name), values);
    for (const auto& [name, values] : rows.own) {
      std::vector<double>& sum = sums[name];
      sum.resize(values.size());
      std::ranges::transform(sum, values, sum.begin(), std::plus<double>());
    }
  });
  ASSERT_TRUE(sums.contains("powersgd.error.wte.weight"));
  for (const auto& [name, sum] : sums) {
    const std::vector<float>& two = saved.at(name);
    ASSERT_EQ(two.size(), 2 * sum.size());
    EXPECT_TRUE(std::ranges::any_of(sum, [](double value) { return value != 0; })) << name;
    for (size_t i = 0; i < sum.size(); ++i) {
      const double expected =
          static_cast<double>(two[i]) + static_cast<double>(two[i + sum.size()]);
      ASSERT_NEAR(sum[i], expected, 1e-6 * std::abs(expected)) << name;
    }
  }
}

TEST_F(Checkpoints, LoadAtAnyNumberOfRanksInAnyStage) {
  TrainOptions options = trained_options(5, 3);
  options.schedule.decay = LearningRateSchedule::Decay::constant;
  train_on(4, saving(options, "four"));
  const auto next = [&](int ranks, int stage) {
    // Each run continues in a copy, because it saves a checkpoint at its end.
    const std::string copy = cat("copy-", ranks, "-", stage);
    std::filesystem::copy(path("four"), path(copy), std::filesystem::copy_options::recursive);
    TrainOptions more = saving(trained_options(8, stage), copy);
    more.schedule = options.schedule;
    more.resume = true;
    const TrainedRun outcome = train_on(ranks, more);
    EXPECT_EQ(outcome.resumed_at, 5u);
    EXPECT_THAT(outcome.losses, SizeIs(3));
    return outcome.losses;
  };
  const std::vector<double> expected = next(4, 3);
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      const std::vector<double> losses = next(ranks, stage);
      // The loss is a sum of the same numbers, in double precision but in another order.
      EXPECT_NEAR(losses.at(0), expected.at(0), 1e-14 * expected.at(0)) << ranks << " " << stage;
      EXPECT_LT(relative_difference(losses, expected), 1e-5) << "optimizer state, too";
    }
  }
}

TEST_F(Checkpoints, AFinishedRunHasNothingToResume) {
  TrainOptions options = saving(trained_options(3), "done");
  const TrainedRun outcome = train_on(2, options);
  options.resume = true;
  const TrainedRun again = train_on(2, options);
  EXPECT_THAT(again.steps, SizeIs(0));
  EXPECT_EQ(again.validation, outcome.validation);
}

TEST_F(Checkpoints, ExportedCheckpointsStartOtherRuns) {
  TrainOptions options = saving(trained_options(5), "five");
  const TrainedRun trained = train_on(2, options);
  export_safetensors(Checkpoint::open(path("five")), path("model.safetensors"));
  TrainOptions fresh = trained_options(5);
  fresh.initial = path("model.safetensors");
  fresh.replica.storage.stage = 3;
  fresh.schedule.warmup_steps = 1000;
  fresh.schedule.peak = 1e-9;  // so small that the parameters hardly change
  const TrainedRun again = train_on(3, fresh);
  EXPECT_NEAR(again.validation, trained.validation, 1e-5);

  GptConfig wider = testing::tiny_gpt();
  wider.width = 64;
  expect_refused([&](const Job& job) { train_as_rank(job, fresh, {}, wider); },
                 "the shape differs for wte.weight");
}

}  // namespace
}  // namespace tutti::training
