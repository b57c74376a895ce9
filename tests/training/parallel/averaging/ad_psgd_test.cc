// Tests asynchronous averaging with one neighbour at a time (AD-PSGD): the mean of all values does
// not change, and a recorded run can be replayed and resumed.
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

#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/late_run.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;
using testing::kLateSteps;
using testing::late_options;
using testing::late_refusal;
using testing::LateRun;
using ::testing::SizeIs;
using testing::train_late;
using testing::train_late_on;
using tutti::testing::run_ranks;

class AdPsgdTest : public FolderTest {};

TEST_F(AdPsgdTest, OneRankTrainsAlone) {
  const LateRun alone = train_late_on(1, late_options("allreduce"))[0];
  const LateRun found = train_late_on(1, late_options("adpsgd"))[0];
  EXPECT_EQ(found.losses, alone.losses);
  EXPECT_EQ(found.values, alone.values);
}

TEST_F(AdPsgdTest, ReplaysARecordedRunBitForBit) {
  for (const int ranks : {2, 3, 5}) {
    SCOPED_TRACE(ranks);
    TrainOptions options = late_options("adpsgd");
    options.replica.sync.record = path("order");
    options.straggler = "1:x2";
    const std::vector<LateRun> first = train_late_on(ranks, options);
    EXPECT_THAT(first[0].losses, SizeIs(kLateSteps));
    EXPECT_LT(first[0].losses.back(), 0.95 * first[0].losses.front()) << "it learns";
    options.replica.sync.record.clear();
    options.replica.sync.replay = path("order");
    options.straggler = "0:x3";
    for (int time = 0; time < 2; ++time) {
      const std::vector<LateRun> again = train_late_on(ranks, options);
      for (size_t rank = 0; rank < again.size(); ++rank) {
        EXPECT_EQ(again[rank].values, first[rank].values) << "rank " << rank;
      }
      EXPECT_EQ(again[0].losses, first[0].losses);
      EXPECT_EQ(again[0].result.validation.loss, first[0].result.validation.loss);
    }
  }
}

// With a learning rate of 0, only averaging changes values.
TEST_F(AdPsgdTest, KeepsTheMeanOfAllValues) {
  for (const int ranks : {2, 3, 4, 5}) {
    TrainOptions options = late_options("adpsgd");
    options.schedule.peak = 0;
    std::vector<float> first(static_cast<size_t>(ranks));
    std::vector<LateRun> ended(first.size());
    run_ranks(ranks, [&](const Job& job) {
      const auto rank = static_cast<size_t>(job.rank);
      ended[rank] = train_late(job, options, {}, [&](Replica& replica) {
        for (const OwnedPiece& piece : replica.owned()) {
          for (float& value : piece.master) value = static_cast<float>(std::cos(job.rank));
        }
        replica.publish();
      });
      first[rank] = static_cast<float>(std::cos(job.rank));
    });
    const double mean = std::accumulate(first.begin(), first.end(), 0.0) / ranks;
    double sum = 0, most_apart = 0;
    for (const LateRun& rank : ended) {
      sum += rank.values[0];
      most_apart = std::max(most_apart, std::abs(rank.values[0] - mean));
    }
    EXPECT_NEAR(sum / ranks, mean, 1e-6) << ranks << " ranks";
    EXPECT_LT(most_apart, 0.3) << "they come together, from 1 apart and more";
  }
}

TEST_F(AdPsgdTest, ResumesFromACheckpointByItsRecord) {
  TrainOptions options = late_options("adpsgd");
  options.replica.sync.record = path("order");
  const std::vector<LateRun> whole = train_late_on(3, options);
  options.replica.sync.record.clear();
  options.replica.sync.replay = path("order");
  options.checkpoint = path("run");
  options.checkpoint_every = 8;
  options.keep = 0;
  train_late_on(3, options);
  options.resume = true;
  options.resume_step = 8;
  // The replayed steps are recorded again.
  options.replica.sync.record = path("order");
  const std::vector<LateRun> rest = train_late_on(3, options);
  for (size_t rank = 0; rank < rest.size(); ++rank) {
    EXPECT_EQ(rest[rank].values, whole[rank].values) << "rank " << rank;
  }
  EXPECT_THAT(read("order"), HasSubstr("\"first\":1,\"last\":8,"));
}

TEST_F(AdPsgdTest, RefusesARecordOfOtherRanks) {
  TrainOptions options = late_options("adpsgd");
  options.replica.sync.record = path("order");
  train_late_on(3, options);
  options.replica.sync.record.clear();
  options.replica.sync.replay = path("order");
  EXPECT_THAT(late_refusal(4, options), HasSubstr("the record has 3 workers"));
  options.flush_every = 12;
  EXPECT_THAT(late_refusal(3, options), HasSubstr("its segment ends at step 8"));
  options.flush_every = 8;
  options.seed = 7;
  EXPECT_THAT(late_refusal(3, options), HasSubstr("it belongs to a run with other settings"));
}

}  // namespace
}  // namespace tutti::training
