// Asynchronous averages with one neighbour: what they keep, and that a record is replayed.
#include "training/parallel/averaging/ad_psgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

constexpr uint64_t kSteps = 24;

TrainOptions options_of(const std::string& way = "adpsgd") {
  TrainOptions options;
  options.samples = kSteps * 8;
  options.batch = 8;
  options.micro_batch = 2;
  options.schedule = {.peak = 3e-3};
  options.flush_every = 8;
  options.validation_samples = 10;
  set_way(options.replica.sync, way);
  return options;
}

struct Ended {
  std::vector<double> losses;
  double validation = 0;
  std::vector<float> values;  // of rank 0
};

// `before`, where given, sets the values that a rank begins with.
Ended train_as_rank(const Job& job, const TrainOptions& options,
                    const std::function<void(Replica&)>& before = {}) {
  Gpt model(testing::tiny_gpt());
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  Trainer trainer(Communicator::init(job), model, {data.get()}, options);
  if (before) before(trainer.replica());
  Ended ended;
  while (const auto report = trainer.next()) ended.losses.push_back(report->result.loss);
  ended.validation = trainer.finish().validation.loss;
  for (const OwnedPiece& piece : trainer.replica().owned()) {
    const auto values = piece.updated().values<float>();
    ended.values.insert(ended.values.end(), values.begin(), values.end());
  }
  return ended;
}

std::vector<Ended> trained(int ranks, const TrainOptions& options) {
  std::vector<Ended> ended(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    ended[static_cast<size_t>(job.rank)] = train_as_rank(job, options);
  });
  return ended;
}

class AdPsgdTest : public FolderTest {};

TEST_F(AdPsgdTest, OneRankTrainsAlone) {
  const Ended alone = trained(1, options_of("allreduce"))[0];
  const Ended found = trained(1, options_of())[0];
  EXPECT_EQ(found.losses, alone.losses);
  EXPECT_EQ(found.values, alone.values);
}

TEST_F(AdPsgdTest, ReplaysARecordedRunBitForBit) {
  for (const int ranks : {2, 3, 5}) {
    SCOPED_TRACE(ranks);
    TrainOptions options = options_of();
    options.replica.sync.record = path("order");
    options.straggler = "1:x2";
    const std::vector<Ended> first = trained(ranks, options);
    EXPECT_THAT(first[0].losses, SizeIs(kSteps));
    EXPECT_LT(first[0].losses.back(), 0.95 * first[0].losses.front()) << "it learns";
    options.replica.sync.record.clear();
    options.replica.sync.replay = path("order");
    options.straggler = "0:x3";
    for (int time = 0; time < 2; ++time) {
      const std::vector<Ended> again = trained(ranks, options);
      for (size_t rank = 0; rank < again.size(); ++rank) {
        EXPECT_EQ(again[rank].values, first[rank].values) << "rank " << rank;
      }
      EXPECT_EQ(again[0].losses, first[0].losses);
      EXPECT_EQ(again[0].validation, first[0].validation);
    }
  }
}

// With a learning rate of 0 values change by averages alone.
TEST_F(AdPsgdTest, KeepsTheMeanOfAllValues) {
  for (const int ranks : {2, 3, 4, 5}) {
    TrainOptions options = options_of();
    options.schedule.peak = 0;
    std::vector<float> first(static_cast<size_t>(ranks));
    std::vector<Ended> ended(first.size());
    run_ranks(ranks, [&](const Job& job) {
      const auto rank = static_cast<size_t>(job.rank);
      ended[rank] = train_as_rank(job, options, [&](Replica& replica) {
        for (const OwnedPiece& piece : replica.owned()) {
          for (float& value : piece.master) value = static_cast<float>(std::cos(job.rank));
        }
        replica.publish();
      });
      first[rank] = static_cast<float>(std::cos(job.rank));
    });
    const double mean = std::accumulate(first.begin(), first.end(), 0.0) / ranks;
    double sum = 0, most_apart = 0;
    for (const Ended& rank : ended) {
      sum += rank.values[0];
      most_apart = std::max(most_apart, std::abs(rank.values[0] - mean));
    }
    EXPECT_NEAR(sum / ranks, mean, 1e-6) << ranks << " ranks";
    EXPECT_LT(most_apart, 0.3) << "they come together, from 1 apart and more";
  }
}

TEST_F(AdPsgdTest, GoesOnFromACheckpointByItsRecord) {
  TrainOptions options = options_of();
  options.replica.sync.record = path("order");
  const std::vector<Ended> whole = trained(3, options);
  options.replica.sync.record.clear();
  options.replica.sync.replay = path("order");
  options.checkpoint = path("run");
  options.checkpoint_every = 8;
  options.keep = 0;
  trained(3, options);
  options.resume = true;
  options.resume_step = 8;
  // What it replays it records again.
  options.replica.sync.record = path("order");
  const std::vector<Ended> rest = trained(3, options);
  for (size_t rank = 0; rank < rest.size(); ++rank) {
    EXPECT_EQ(rest[rank].values, whole[rank].values) << "rank " << rank;
  }
  EXPECT_THAT(read("order"), HasSubstr("\"first\":1,\"last\":8,"));
}

TEST_F(AdPsgdTest, RefusesARecordOfOtherRanks) {
  TrainOptions options = options_of();
  options.replica.sync.record = path("order");
  trained(3, options);
  options.replica.sync.record.clear();
  options.replica.sync.replay = path("order");
  const auto refusal = [&](int ranks) {
    const auto errors =
        run_ranks_catching(ranks, [&](const Job& job) { train_as_rank(job, options); });
    return errors.front() ? std::string(errors.front()->what()) : "";
  };
  EXPECT_THAT(refusal(4), HasSubstr("the record has 3 workers"));
  options.flush_every = 12;
  EXPECT_THAT(refusal(3), HasSubstr("its stretch ends with step 8"));
  options.flush_every = 8;
  options.seed = 7;
  EXPECT_THAT(refusal(3), HasSubstr("it is of a run with other settings"));
}

}  // namespace
}  // namespace tutti::training
