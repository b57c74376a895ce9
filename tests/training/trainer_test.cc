// Tests training, from data to a checkpoint and back, on ranks that are threads.
#include "training/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
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
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/run_directory.h"
#include "training/models/gpt.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::relative_difference;
using ::testing::SizeIs;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

constexpr uint64_t kBatch = 6;

TrainOptions options_of(uint64_t steps, int stage = 0, DType dtype = DType::f32) {
  TrainOptions options;
  options.samples = steps * kBatch;
  options.batch = kBatch;
  options.micro_batch = 2;
  options.schedule = {.peak = 3e-3, .warmup_steps = 3};
  options.replica.storage = {.stage = stage, .dtype = dtype, .bucket_elements = 1 << 13};
  if (dtype == DType::f16) {
    options.replica.loss_scaling = {.initial_scale = 0x1p20, .growth_interval = 3};
  }
  options.replica.clip = 1;
  options.validation_samples = 10;
  return options;
}

// The results of a run on one rank.
struct Outcome {
  std::vector<uint64_t> steps;
  std::vector<double> losses;
  double validation = 0;
  uint64_t resumed_at = 0;

  bool operator==(const Outcome&) const = default;
};

using OnStep = std::function<void(const StepReport&)>;

Outcome train_as_rank(const Job& job, const TrainOptions& options, const OnStep& on_step = {},
                      const GptConfig& config = testing::tiny_gpt()) {
  Gpt model(config);
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  Outcome outcome;
  const TrainResult result =
      train(Communicator::init(job), model, {data.get()}, options, [&](const StepReport& report) {
        outcome.steps.push_back(report.step);
        outcome.losses.push_back(report.result.loss);
        if (on_step) on_step(report);
      });
  outcome.validation = result.validation.loss;
  outcome.resumed_at = result.resumed_at;
  return outcome;
}

// Trains on `ranks` ranks. Expects all ranks to have the same results.
Outcome train_on(int ranks, const TrainOptions& options) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    outcomes[static_cast<size_t>(job.rank)] = train_as_rank(job, options);
  });
  EXPECT_THAT(outcomes, Each(outcomes.front()));
  return outcomes.front();
}

// --- ranks ---

TEST(Trainer, EveryNumberOfRanksTrainsTheSameModel) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    TrainOptions options = options_of(20);
    options.optimizer = {{"name", optimizer}};
    if (optimizer == "sgd") options.schedule.peak = 0.1;
    const Outcome alone = train_on(1, options);
    ASSERT_THAT(alone.losses, SizeIs(20));
    EXPECT_NEAR(alone.losses.front(), std::log(256), 0.1) << "nothing is known at first";
    EXPECT_LT(alone.losses.back(), 0.9 * alone.losses.front());
    EXPECT_LT(alone.validation, 0.9 * alone.losses.front());
    for (const int ranks : {2, 3, 4}) {
      const Outcome shared = train_on(ranks, options);
      EXPECT_LT(relative_difference(shared.losses, alone.losses), 1e-5) << ranks;
      EXPECT_NEAR(shared.validation, alone.validation, 1e-5 * alone.validation) << ranks;
    }
  }
}

TEST(Trainer, MoreRanksThanMicroBatches) {
  TrainOptions options = options_of(5);
  options.batch = 3;
  options.samples = 13;  // the last step has only one sample
  const Outcome alone = train_on(1, options);
  EXPECT_THAT(alone.losses, SizeIs(5));
  EXPECT_LT(relative_difference(train_on(3, options).losses, alone.losses), 1e-5);
}

TEST(Trainer, SameSeedSameBitsAndAnotherSeedOthers) {
  TrainOptions options = options_of(5);
  const Outcome first = train_on(2, options);
  EXPECT_EQ(train_on(2, options), first);
  options.seed = 2;
  EXPECT_NE(train_on(2, options), first);
}

TEST(Trainer, ValidatesAtTheRequestedSteps) {
  TrainOptions options = options_of(5);
  options.validate_every = 2;
  std::vector<uint64_t> validated;
  run_ranks(1, [&](const Job& job) {
    train_as_rank(job, options, [&](const StepReport& report) {
      if (report.validation) validated.push_back(report.step);
    });
  });
  EXPECT_THAT(validated, ElementsAre(2, 4));
}

// --- errors ---

bool says(const Error& error, ErrorCode code, const std::string& said) {
  return error.code() == code && std::string(error.what()).find(said) != std::string::npos;
}

// Expects every rank to report the error, because all ranks detect it together.
void expect_refused_by_all(int ranks, const std::function<void(const Job&)>& body, ErrorCode code,
                           const std::string& said) {
  for (const std::optional<Error>& error : run_ranks_catching(ranks, body)) {
    ASSERT_TRUE(error);
    EXPECT_TRUE(says(*error, code, said)) << error->what();
  }
}

// Expects an error that each rank detects by itself. The first rank that throws may abort others
// before their check.
void expect_refused(const std::function<void(const Job&)>& body, const std::string& said) {
  int found = 0;
  for (const std::optional<Error>& error : run_ranks_catching(2, body)) {
    ASSERT_TRUE(error);
    if (error->code() == ErrorCode::aborted) continue;
    EXPECT_TRUE(says(*error, ErrorCode::invalid_argument, said)) << error->what();
    ++found;
  }
  EXPECT_GE(found, 1) << said;
}

TEST(Trainer, DetectsRanksWithOtherOptions) {
  for (const auto change : std::vector<void (*)(TrainOptions&)>{
           [](TrainOptions& options) { options.seed = 7; },
           [](TrainOptions& options) { options.micro_batch = 1; },
           [](TrainOptions& options) { options.optimizer["beta2"] = 0.9; },
           [](TrainOptions& options) { options.replica.clip.reset(); },
           [](TrainOptions& options) { options.schedule.peak += 1e-12; },
           [](TrainOptions& options) { options.replica.data_parallel.overlap = false; },
           [](TrainOptions& options) { options.replica.storage.stage = 1; }}) {
    expect_refused_by_all(
        3,
        [&](const Job& job) {
          TrainOptions options = options_of(2);
          if (job.rank == 1) change(options);
          train_as_rank(job, options);
        },
        ErrorCode::mismatch, "the ranks do not train the same model");
  }
  expect_refused_by_all(
      3,
      [&](const Job& job) {
        TrainOptions options = options_of(2);
        if (job.rank == 1) options.schedule.peak = 0.01;
        train_as_rank(job, options);
      },
      ErrorCode::mismatch, "has lr 0.01 (rank 0: 0.003)");
}

TEST(Trainer, DetectsRanksWithAnotherModelOrOtherData) {
  expect_refused_by_all(
      2,
      [&](const Job& job) {
        GptConfig config = testing::tiny_gpt();
        config.layers += job.rank;
        train_as_rank(job, options_of(2), {}, config);
      },
      ErrorCode::mismatch, "their data or training options differ");
  expect_refused_by_all(
      2,
      [&](const Job& job) {
        Gpt model(testing::tiny_gpt());
        std::vector<uint8_t> bytes(1000, static_cast<uint8_t>('a' + job.rank));
        const TokenWindows data(Tokens(split_text(std::move(bytes))), testing::kTinyContext, 1);
        train(Communicator::init(job), model, {&data}, options_of(2), [](const StepReport&) {});
      },
      ErrorCode::mismatch, "their data or training options differ");
}

TEST(Trainer, ADivergedLossIsAnErrorOfAllRanks) {
  TrainOptions options = options_of(20);
  options.optimizer = {{"name", "sgd"}};
  options.schedule.peak = 1e30;
  options.replica.clip.reset();
  expect_refused_by_all(
      2, [&](const Job& job) { train_as_rank(job, options); }, ErrorCode::invalid_argument,
      "is not finite");
}

TEST(Trainer, NamesInvalidOptions) {
  const auto refused = [](auto change, const std::string& said) {
    TrainOptions options = options_of(2);
    change(options);
    expect_refused([&](const Job& job) { train_as_rank(job, options); }, said);
  };
  refused([](TrainOptions& o) { o.batch = 0; }, "steps of 0 samples");
  refused([](TrainOptions& o) { o.micro_batch = 0; }, "micro-batches of 0");
  refused([](TrainOptions& o) { o.optimizer["beta1"] = 1; }, "beta1");
  refused([](TrainOptions& o) { o.replica.storage.stage = 4; }, "ZeRO stage 4");
  refused([](TrainOptions& o) { o.replica.storage.dtype = DType::i32; }, "i32");
  refused([](TrainOptions& o) { o.replica.storage.bucket_elements = 0; }, "buckets of 0 elements");
  refused([](TrainOptions& o) { o.data_weights = {1, 2}; }, "1 data sets were given");
  refused([](TrainOptions& o) { o.checkpoint_every = 2; },
          "no effect without a checkpoint directory");
  refused([](TrainOptions& o) { o.keep_best = true; }, "no effect without a checkpoint directory");
}

// --- checkpoints ---

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
      Outcome first;
      run_ranks(2, [&](const Job& job) {
        const Outcome outcome = train_as_rank(job, how, on_step, model);
        if (job.rank == 0) first = outcome;
      });
      return first;
    };
    const Outcome whole = train_as(saving(options, "whole"));

    TrainOptions cut = saving(options, "cut");
    cut.checkpoint_every = 5;
    EXPECT_THROW(train_as(cut,
                          [](const StepReport& report) {
                            if (report.step == 7) throw Error(ErrorCode::system, "power cut");
                          }),
                 Error);
    cut.resume = true;
    const Outcome resumed = train_as(cut);
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
  expect_to_resume(options_of(10, stage, dtype), model);
}

class RoundedStages : public Checkpoints, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Zero, RoundedStages, ::testing::Values(0, 1, 3));

TEST_P(RoundedStages, ARunWithoutMastersResumesToTheSameBits) {
  TrainOptions options = options_of(10, GetParam(), DType::bf16);
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
  TrainOptions options = options_of(10, 2);
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
  longer.samples = 15 * kBatch;
  const Outcome expected = train_on(2, longer);
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
  TrainOptions options = options_of(10, 0, GetParam());
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
    TrainOptions options = options_of(10, 0);
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
  TrainOptions options = options_of(10, GetParam() == DType::f32 ? 1 : 0, GetParam());
  options.replica.factors.layers = FactorLayers::all;
  expect_to_resume(options);
}

// At step 5, the ranks have different values and momenta.
TEST_F(Checkpoints, ARunOfLocalStepsResumesToTheSameBits) {
  TrainOptions options = options_of(10, 0);
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
  TrainOptions options = options_of(5, 3);
  options.schedule.decay = LearningRateSchedule::Decay::constant;
  train_on(4, saving(options, "four"));
  const auto next = [&](int ranks, int stage) {
    // Each run continues in a copy, because it saves a checkpoint at its end.
    const std::string copy = cat("copy-", ranks, "-", stage);
    std::filesystem::copy(path("four"), path(copy), std::filesystem::copy_options::recursive);
    TrainOptions more = saving(options_of(8, stage), copy);
    more.schedule = options.schedule;
    more.resume = true;
    const Outcome outcome = train_on(ranks, more);
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
  TrainOptions options = saving(options_of(3), "done");
  const Outcome outcome = train_on(2, options);
  options.resume = true;
  const Outcome again = train_on(2, options);
  EXPECT_THAT(again.steps, SizeIs(0));
  EXPECT_EQ(again.validation, outcome.validation);
}

TEST_F(Checkpoints, ExportedCheckpointsStartOtherRuns) {
  TrainOptions options = saving(options_of(5), "five");
  const Outcome trained = train_on(2, options);
  export_safetensors(Checkpoint::open(path("five")), path("model.safetensors"));
  TrainOptions fresh = options_of(5);
  fresh.initial = path("model.safetensors");
  fresh.replica.storage.stage = 3;
  fresh.schedule.warmup_steps = 1000;
  fresh.schedule.peak = 1e-9;  // so small that the parameters hardly change
  const Outcome again = train_on(3, fresh);
  EXPECT_NEAR(again.validation, trained.validation, 1e-5);

  GptConfig wider = testing::tiny_gpt();
  wider.width = 64;
  expect_refused([&](const Job& job) { train_as_rank(job, fresh, {}, wider); },
                 "the shape differs for wte.weight");
}

}  // namespace
}  // namespace tutti::training
