#include "training/run/epoch_check.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti::training {
namespace {

TEST(EpochCheck, HoldsForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    const EpochCheck check =
        check_epochs({.sizes = {101}, .batch = 12, .micro_batch = 5, .ranks = ranks});
    EXPECT_TRUE(check.holds()) << ranks;
    EXPECT_EQ(check.epochs.size(), 3u);
    EXPECT_EQ(check.resumed_ranks, ranks + 1);
    for (const EpochCount& count : check.epochs) EXPECT_EQ(count.taken, 101u);
  }
}

// Two sets of equal sizes have the weights 3 and 1, so that the first has three epochs during one
// of the second.
TEST(EpochCheck, CountsTheEpochsOfEachDataSet) {
  const EpochCheck check =
      check_epochs({.sizes = {40, 40}, .weights = {3, 1}, .batch = 8, .epochs = 2});
  EXPECT_TRUE(check.holds());
  uint64_t of_first = 0, of_second = 0;
  for (const EpochCount& count : check.epochs) {
    (count.data_set == 0 ? of_first : of_second) += count.taken;
  }
  EXPECT_EQ(of_first, 240u);
  EXPECT_EQ(of_second, 80u);
}

TEST(EpochCheck, ReportsMissedExamplesAndRepeatedOrders) {
  EpochCheck check = check_epochs({.sizes = {50}, .batch = 10});
  EpochCheck missed = check;
  missed.epochs.front().missing = 1;
  EXPECT_FALSE(missed.holds());
  EpochCheck repeated = check;
  repeated.epochs.back().same_place = 50;
  EXPECT_FALSE(repeated.holds());
  check.same_after_resume = false;
  EXPECT_FALSE(check.holds());
}

TEST(EpochCheck, RefusesADataSetWithoutExamples) {
  EXPECT_THROW(check_epochs({.sizes = {0}}), Error);
}

}  // namespace
}  // namespace tutti::training
