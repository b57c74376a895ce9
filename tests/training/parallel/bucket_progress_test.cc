// Tests which buckets of gradients are reported as complete, and when.
#include "training/parallel/bucket_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Bucket 0 has the parameters 2 and 3, bucket 1 has 0 and 1.
Layout two_buckets() {
  Layout layout;
  layout.slots = {{.parameter = 0, .bucket = 1},
                  {.parameter = 1, .bucket = 1},
                  {.parameter = 2, .bucket = 0},
                  {.parameter = 3, .bucket = 0}};
  layout.buckets.resize(2);
  layout.buckets[0].parameters = {2, 3};
  layout.buckets[1].parameters = {0, 1};
  return layout;
}

std::vector<int> told(BucketProgress& progress) {
  std::vector<int> buckets;
  while (const std::optional<int> bucket = progress.next()) buckets.push_back(*bucket);
  return buckets;
}

class Buckets : public testing::Test {
 protected:
  // Three units. The first and the last both use parameter 0, as with a tied embedding.
  BucketProgress make(std::vector<int> joined, bool by_micro_batch) {
    return {layout_, {{0}, {1, 2}, {3, 0}}, std::move(joined), by_micro_batch};
  }
  const Layout layout_ = two_buckets();
};

TEST_F(Buckets, BucketsAreReportedInOrderOfLaunch) {
  BucketProgress progress = make({}, false);
  progress.begin_step(std::array<int64_t, 3>{1, 1, 1});
  EXPECT_FALSE(progress.contribute(0)) << "another unit uses it";
  EXPECT_TRUE(progress.contribute(0));
  EXPECT_TRUE(progress.contribute(1));
  EXPECT_THAT(told(progress), IsEmpty()) << "bucket 1 is complete, but 0 is before it";
  EXPECT_TRUE(progress.contribute(3));
  EXPECT_THAT(progress.missing(), ElementsAre(2));
  EXPECT_TRUE(progress.contribute(2));
  EXPECT_THAT(told(progress), ElementsAre(0, 1));
  EXPECT_THAT(told(progress), IsEmpty()) << "each once";
  EXPECT_TRUE(progress.complete());
}

TEST_F(Buckets, BucketsAreCompleteAfterAllMicroBatches) {
  BucketProgress progress = make({}, false);
  progress.begin_step(std::array<int64_t, 3>{2, 2, 2});
  for (const int parameter : {3, 0, 2, 1, 0, 3, 0, 2, 1}) {
    EXPECT_EQ(progress.contribute(parameter) && parameter == 0, false) << "its last one is to come";
  }
  EXPECT_THAT(told(progress), ElementsAre(0));
  EXPECT_FALSE(progress.complete());
  EXPECT_TRUE(progress.contribute(0));
  EXPECT_THAT(told(progress), ElementsAre(1));
}

TEST_F(Buckets, EachMicroBatchHasARoundIfItIsSummedSeparately) {
  BucketProgress progress = make({}, true);
  progress.begin_step(std::array<int64_t, 3>{2, 2, 2});
  std::vector<int> all;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    for (const int parameter : {3, 0, 1, 2, 0}) {
      progress.contribute(parameter);
      for (const int bucket : told(progress)) all.push_back(bucket);
    }
  }
  EXPECT_THAT(all, ElementsAre(0, 1, 0, 1));
  EXPECT_TRUE(progress.complete());
}

TEST_F(Buckets, WaitForTheOtherStageThatUsesAParameter) {
  for (const bool by_micro_batch : {false, true}) {
    BucketProgress progress = make({1}, by_micro_batch);
    EXPECT_TRUE(progress.joined(1));
    EXPECT_FALSE(progress.joined(0));
    progress.begin_step(std::array<int64_t, 3>{1, 1, 1});
    for (const int parameter : {3, 0, 1, 2, 0}) progress.contribute(parameter);
    EXPECT_THAT(told(progress), ElementsAre(0));
    EXPECT_THAT(progress.missing(), ElementsAre(1));
    EXPECT_TRUE(progress.contribute(1));
    EXPECT_THAT(told(progress), ElementsAre(1)) << "at the end, in one round";
    EXPECT_TRUE(progress.complete());
  }
}

TEST_F(Buckets, UnusedParametersEndBuckets) {
  BucketProgress progress = make({}, false);
  progress.begin_step(std::array<int64_t, 3>{1, 1, 1});
  for (const int parameter : {3, 0, 0}) progress.contribute(parameter);
  EXPECT_THAT(told(progress), IsEmpty());
  EXPECT_FALSE(progress.complete());
  EXPECT_THAT(progress.missing(), ElementsAre(1, 2));
  progress.give_up_waiting();
  EXPECT_THAT(told(progress), ElementsAre(0, 1));
  EXPECT_TRUE(progress.complete());
  progress.begin_step(std::array<int64_t, 3>{1, 1, 1});
  for (const int parameter : {3, 0, 1, 2, 0}) progress.contribute(parameter);
  EXPECT_THAT(told(progress), ElementsAre(0, 1)) << "the next step begins anew";
}

}  // namespace
}  // namespace tutti::training
