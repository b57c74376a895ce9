// Tests the individual steps of a run, and operations between steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/models/gpt.h"
#include "training/run/parameter_values.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using tutti::testing::run_ranks;

class Steps : public FolderTest {
 protected:
  static TrainOptions options_of(uint64_t steps, int stage = 0, DType dtype = DType::f32) {
    TrainOptions options;
    options.samples = steps * 6;
    options.batch = 6;
    options.micro_batch = 2;
    options.replica.storage = {.stage = stage, .dtype = dtype, .bucket_elements = 1 << 13};
    options.validation_samples = 10;
    return options;
  }
};

// One rank's trainer and the objects that it uses.
struct Rank {
  Rank(const Job& job, const TrainOptions& options)
      : trainer(Communicator::init(job), model, {data.get()}, options) {}

  std::vector<double> losses(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) losses.push_back(trainer.next().value().result.loss);
    return losses;
  }

  Gpt model{testing::tiny_gpt()};
  std::unique_ptr<DataSet> data = testing::tiny_data();
  Trainer trainer;
};

TEST_F(Steps, StepsAreCountedAndEnd) {
  run_ranks(2, [&](const Job& job) {
    Rank rank(job, options_of(3));
    EXPECT_EQ(rank.trainer.steps(), 3u);
    EXPECT_EQ(rank.trainer.step(), 0u);
    EXPECT_THAT(rank.losses(3), SizeIs(3));
    EXPECT_EQ(rank.trainer.step(), 3u);
    EXPECT_FALSE(rank.trainer.next());
    EXPECT_FALSE(rank.trainer.next());
    const TrainResult result = rank.trainer.finish();
    EXPECT_EQ(result.step, 3u);
    EXPECT_EQ(result.validation.loss, rank.trainer.validate().loss);
  });
}

TEST_F(Steps, SavedOrEarlyEndedRunsAreResumed) {
  TrainOptions options = options_of(5);
  options.replica.clip = 1;
  std::vector<double> wanted;
  run_ranks(1, [&](const Job& job) { wanted = Rank(job, options).losses(5); });
  options.checkpoint = path("run");
  options.resume_or_new = options.resume = true;
  std::vector<double> losses;
  const auto add = [&](const std::vector<double>& more) {
    losses.insert(losses.end(), more.begin(), more.end());
  };
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, options);
    add(rank.losses(2));
    rank.trainer.save();
    rank.trainer.save();
    rank.losses(1);  // this step is lost
  });
  EXPECT_EQ(Checkpoint::open(path("run")).manifest().step, 2);
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, options);
    EXPECT_EQ(rank.trainer.step(), 2u);
    add(rank.losses(1));
    const TrainResult result = rank.trainer.finish();
    EXPECT_EQ(result.resumed_at, 2u);
    EXPECT_EQ(result.validation.targets, 0) << "it is not at its end";
  });
  run_ranks(1, [&](const Job& job) { add(Rank(job, options).losses(2)); });
  EXPECT_EQ(losses, wanted);
}

TEST_F(Steps, ARunWithoutADirectoryIsNotSaved) {
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, options_of(2));
    rank.losses(1);
    EXPECT_THAT(error_of([&] { rank.trainer.save(); }), HasSubstr("no checkpoint directory"));
  });
}

// --- parameters between steps ---

TEST_F(Steps, ParametersAreReadAndWrittenInEveryLayout) {
  const testing::Deterministic deterministic;  // so that all layouts have the same losses
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::vector<double>> losses(8);
    for (int stage = 0; stage <= 3; ++stage) {
      run_ranks(2, [&](const Job& job) {
        Rank rank(job, options_of(4, stage, dtype));
        rank.losses(1);
        ParameterValues values(rank.trainer.replica(), rank.model);
        for (int i = 0; i < static_cast<int>(values.specs().size()); ++i) {
          ASSERT_TRUE(values.has(i));
          std::vector<float> all(
              static_cast<size_t>(values.specs()[static_cast<size_t>(i)].count()));
          values.read(i, all);
          for (float& value : all) value *= -3;
          values.write(i, all);
          std::vector<float> again(all.size());
          values.read(i, again);
          EXPECT_EQ(again, all) << stage;
          const Memory<float> in_place = values.in_place(i);
          EXPECT_EQ(in_place != nullptr, dtype == DType::f32 && stage < 3);
          if (in_place == nullptr) continue;
          EXPECT_EQ(std::vector(in_place.get(), in_place.get() + all.size()), all);
        }
        losses[static_cast<size_t>(2 * stage + job.rank)] = rank.losses(3);
      });
    }
    EXPECT_THAT(losses, Each(losses.front())) << name(dtype);
  }
}

TEST_F(Steps, AParameterLivesAsLongAsAReference) {
  Memory<float> held;
  float first = 0;
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, options_of(2));
    held = ParameterValues(rank.trainer.replica(), rank.model).in_place(0);
    rank.losses(1);
    first = held[0];
  });
  EXPECT_EQ(held[0], first);
  held[0] = 2;  // the memory still exists
}

}  // namespace
}  // namespace tutti::training
