// Tests the measured gradient noise scale in runs whose noise is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/core/random.h"
#include "training/modules/features.h"
#include "training/modules/linear.h"
#include "training/modules/slots.h"
#include "training/modules/squared_error.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using ::testing::NanSensitiveDoubleEq;
using ::testing::Pointwise;
using tutti::testing::run_ranks;

constexpr int64_t kOutputs = 16;
constexpr uint64_t kExamples = 4096;

// Predicts the same values for all samples; they are initially 0. The gradient of a sample's mean
// squared error is then -2 / outputs times its targets.
class Constant : public Unit {
 public:
  explicit Constant(ParameterTable& table)
      : linear_(table, "constant", 1, kOutputs, {.bias = false, .deviation = 0}) {}
  std::string name() const override { return "constant"; }
  OutputShape output_shape() const override { return {1, kOutputs}; }
  Tensor forward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    return saved.error.forward(pass, linear_.forward(pass, features_of(pass, 1), saved.linear));
  }
  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    linear_.backward(pass, saved.error.backward(pass), saved.linear);
    return {};
  }

 private:
  struct Saved {
    Linear::Saved linear;
    SquaredError error;
  };
  Linear linear_;
  Slots<Saved> saved_;
};

struct ConstantModel : Model {
  ConstantModel() { add_unit<Constant>(); }
  int64_t targets_per_sample() const override { return kOutputs; }
};

// Targets between -0.5 and 1.5.
class Noise : public DataSet {
 public:
  uint64_t size() const override { return kExamples; }
  uint64_t validation_size() const override { return 0; }
  void add(uint64_t example, uint64_t, Batch& batch) const override {
    ++batch.samples;
    batch.features.push_back(1);
    for (uint64_t i = 0; i < kOutputs; ++i) {
      batch.float_targets.push_back(0.5f + scale_symmetric(random_bits(1, example, i), 1.0f));
    }
  }
  void add_validation(uint64_t, Batch&) const override {}
  uint64_t fingerprint() const override { return 1; }

  // Returns B_simple over all examples: the trace of the covariance, divided by the squared norm of
  // the mean.
  double scale() const {
    double means = 0, variances = 0;
    std::vector<double> sums(kOutputs), squares(kOutputs);
    for (uint64_t example = 0; example < kExamples; ++example) {
      Batch batch;
      add(example, 0, batch);
      for (size_t i = 0; i < sums.size(); ++i) {
        const double target = batch.float_targets[i];
        sums[i] += target / kExamples;
        squares[i] += target * target / kExamples;
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      means += sums[i] * sums[i];
      variances += squares[i] - sums[i] * sums[i];
    }
    return variances / means;
  }
};

TrainOptions options_of(uint64_t steps, uint64_t micro_batch) {
  TrainOptions options;
  options.batch = 16;
  options.micro_batch = micro_batch;
  options.samples = steps * options.batch;
  options.optimizer = {{"name", "sgd"}};
  options.schedule = {.decay = LearningRateSchedule::Decay::constant, .peak = 1e-12};
  return options;
}

double last_scale(int ranks, uint64_t micro_batch, int stage = 0) {
  double scale = 0;
  run_ranks(ranks, [&](const Job& job) {
    ConstantModel model;
    const Noise data;
    TrainOptions options = options_of(2000, micro_batch);
    options.replica.storage.stage = stage;
    Trainer trainer(Communicator::init(job), model, {&data}, options);
    double last = 0;
    while (const auto report = trainer.next()) last = report->noise_scale;
    if (job.rank == 0) scale = last;
  });
  return scale;
}

TEST(Noise, IsMeasuredFromMicroBatchesAndRanks) {
  const double known = Noise().scale();
  EXPECT_NEAR(known, 4.0 / 3, 0.05);
  EXPECT_NEAR(last_scale(1, 2), known, 0.1 * known) << "several micro-batches, one rank";
  EXPECT_NEAR(last_scale(2, 2), known, 0.1 * known) << "several of both";
  EXPECT_NEAR(last_scale(2, 8, 2), known, 0.2 * known) << "one micro-batch a rank, ZeRO";
  EXPECT_NEAR(last_scale(4, 5), known, 0.1 * known) << "the last rank's micro-batch has one sample";
}

using SavedNoise = FolderTest;

TEST_F(SavedNoise, ContinuesInAResumedRun) {
  run_ranks(1, [&](const Job& job) {
    ConstantModel model;
    const Noise data;
    const auto scales = [&](const TrainOptions& options, int steps) {
      Trainer trainer(Communicator::init(job), model, {&data}, options);
      std::vector<double> scales;
      for (int step = 0; step < steps; ++step) {
        scales.push_back(trainer.next().value().noise_scale);
      }
      if (!options.checkpoint.empty()) trainer.save();
      return scales;
    };
    TrainOptions options = options_of(40, 2);
    const std::vector<double> whole = scales(options, 40);
    options.checkpoint = path("run");
    options.resume = options.resume_or_new = true;
    std::vector<double> parts = scales(options, 25);
    const std::vector<double> rest = scales(options, 15);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_GT(whole.back(), 0);
    EXPECT_THAT(parts, Pointwise(NanSensitiveDoubleEq(), whole));
  });
}

TEST(Noise, IsUnknownWithOneMicroBatchPerStep) { EXPECT_TRUE(std::isnan(last_scale(1, 16))); }

}  // namespace
}  // namespace tutti::training
