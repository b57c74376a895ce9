#include "training/run/feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/data/client_set.h"

namespace tutti::training {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Each example encodes its own index: the token is first + example, and the target is the epoch.
class Numbers : public DataSet {
 public:
  Numbers(uint64_t size, uint64_t validation_size, int32_t first = 0)
      : size_(size), validation_size_(validation_size), first_(first) {
    for (uint64_t example = 0; example < size; ++example) {
      labels_.push_back(static_cast<uint8_t>(example % 10));
    }
  }
  std::span<const uint8_t> labels() const override { return labels_; }
  uint64_t size() const override { return size_; }
  uint64_t validation_size() const override { return validation_size_; }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override {
    batch.tokens.push_back(first_ + static_cast<int32_t>(example));
    batch.targets.push_back(static_cast<int32_t>(epoch));
    ++batch.samples;
  }
  void add_validation(uint64_t example, Batch& batch) const override {
    add(example, ~uint64_t{0}, batch);
  }
  uint64_t fingerprint() const override { return size_; }

 private:
  uint64_t size_;
  uint64_t validation_size_;
  int32_t first_;
  std::vector<uint8_t> labels_;
};

// add() blocks until the given number of threads have called it.
class Meeting : public Numbers {
 public:
  explicit Meeting(int threads) : Numbers(100, 0), missing_(threads) {}
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override {
    Numbers::add(example, epoch, batch);
    std::unique_lock lock(mutex_);
    --missing_;
    met_.notify_all();
    met_.wait_for(lock, std::chrono::seconds(20), [&] { return missing_ <= 0; });
  }
  bool has_met() const {
    const std::lock_guard lock(mutex_);
    return missing_ <= 0;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable met_;
  mutable int missing_;
};

// The micro-batches of all ranks in one step, in the order of samples.
using Step = std::vector<Batch>;

std::vector<Step> all_steps(const DataSet& set, FeedOptions options, int ranks, uint64_t from = 0) {
  options.ranks = ranks;
  std::vector<Step> steps;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    const Feed feed({&set}, options);
    const auto loader = feed.steps_from(from);
    size_t index = 0;
    for (; std::optional<StepFeed> step = loader->next(); ++index) {
      if (index == steps.size()) steps.emplace_back();
      EXPECT_LE(step->own.size(), step->passes);
      EXPECT_LE(step->passes, step->own.size() + 1) << "ranks differ by one pass at most";
      std::ranges::copy_if(step->own, std::back_inserter(steps[index]),
                           [](const Batch& batch) { return batch.weight == 1; });
    }
    EXPECT_EQ(index, steps.size());
  }
  return steps;
}

bool same(const Batch& a, const Batch& b) {
  return a.samples == b.samples && a.first_sample == b.first_sample && a.tokens == b.tokens &&
         a.targets == b.targets;
}

bool same(const std::vector<Step>& a, const std::vector<Step>& b) {
  return std::ranges::equal(a, b, [](const Step& left, const Step& right) {
    return std::ranges::equal(left, right,
                              [](const Batch& x, const Batch& y) { return same(x, y); });
  });
}

TEST(Feed, TakesEverySampleOfAnEpochOnce) {
  const Numbers set(23, 1);
  for (const int ranks : {1, 2, 3, 5}) {
    // Three epochs.
    const auto steps = all_steps(set, {.batch = 7, .micro_batch = 2, .samples = 69}, ranks);
    EXPECT_THAT(steps, SizeIs(10));
    std::map<int32_t, std::vector<int32_t>> by_epoch;
    for (const Step& step : steps) {
      for (const Batch& batch : step) {
        for (size_t i = 0; i < batch.tokens.size(); ++i) {
          by_epoch[batch.targets[i]].push_back(batch.tokens[i]);
        }
      }
    }
    ASSERT_THAT(by_epoch, SizeIs(3));
    EXPECT_NE(by_epoch[0], by_epoch[1]) << "another order";
    for (auto& [epoch, tokens] : by_epoch) {
      EXPECT_FALSE(std::ranges::is_sorted(tokens)) << "shuffled";
      std::ranges::sort(tokens);
      std::vector<int32_t> all(23);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(tokens, all) << "epoch " << epoch;
    }
  }
}

TEST(Feed, AMicroBatchDoesNotDependOnTheRanks) {
  const Numbers set(100, 1);
  const FeedOptions options{.batch = 14, .micro_batch = 4, .samples = 50};
  const auto alone = all_steps(set, options, 1);
  for (const int ranks : {2, 3, 4, 7}) {
    EXPECT_TRUE(same(all_steps(set, options, ranks), alone)) << ranks;
  }
}

TEST(Feed, TheLastMicroBatchAndStepMayBeSmaller) {
  const Numbers set(100, 1);
  const auto steps = all_steps(set, {.batch = 14, .micro_batch = 4, .samples = 33}, 2);
  ASSERT_THAT(steps, SizeIs(3));
  const auto sizes = [](const Step& step) {
    std::vector<int64_t> sizes;
    for (const Batch& batch : step) sizes.push_back(batch.samples);
    return sizes;
  };
  EXPECT_THAT(sizes(steps[0]), ElementsAre(4, 4, 4, 2));
  EXPECT_THAT(sizes(steps[1]), ElementsAre(4, 4, 4, 2));
  EXPECT_THAT(sizes(steps[2]), ElementsAre(4, 1));
  EXPECT_EQ(steps[2].front().first_sample, 28u);
  EXPECT_EQ(steps[2].back().first_sample, 32u);
}

TEST(Feed, ARankWithoutSamplesGetsAMicroBatchOfWeightZero) {
  const Numbers set(100, 1);
  const FeedOptions options{.batch = 5, .micro_batch = 4, .samples = 5, .rank = 0, .ranks = 3};
  const auto step = Feed({&set}, options).steps_from(0)->next();
  ASSERT_TRUE(step);
  ASSERT_THAT(step->own, SizeIs(1));
  EXPECT_EQ(step->own[0].weight, 0);
  EXPECT_EQ(step->own[0].view().weight, 0);
  EXPECT_TRUE(same(step->own[0], all_steps(set, options, 3)[0].back())) << "the last of the others";
  EXPECT_EQ(step->passes, 1u);
  EXPECT_EQ(step->samples, 5u) << "of all ranks";
}

TEST(Feed, ResumesAtAnyStepHoweverManyWorkersThereAre) {
  const Numbers set(31, 1);
  FeedOptions options{.batch = 6, .micro_batch = 2, .samples = 80, .workers = 0};
  const auto all = all_steps(set, options, 2);
  for (const int workers : {0, 1, 3}) {
    options.workers = workers;
    for (const uint64_t from : {0, 1, 9, 13, 14}) {
      const std::vector<Step> tail(all.begin() + static_cast<std::ptrdiff_t>(from), all.end());
      EXPECT_TRUE(same(all_steps(set, options, 2, from), tail)) << workers << " from " << from;
    }
  }
}

TEST(Feed, TheSeedChangesTheOrder) {
  const Numbers set(31, 1);
  FeedOptions options{.batch = 6, .micro_batch = 6, .samples = 30};
  const auto first = all_steps(set, options, 1);
  options.seed = 2;
  EXPECT_FALSE(same(all_steps(set, options, 1), first));
}

TEST(Feed, DataSetsTakeTurnsByTheirWeights) {
  const Numbers small(10, 1), large(30, 1, 1000);
  const auto from_small = [&](std::vector<double> weights) {
    const Feed feed({&small, &large},
                    {.batch = 8, .micro_batch = 8, .samples = 8, .weights = std::move(weights)});
    return std::ranges::count_if(feed.steps_from(0)->next()->own.at(0).tokens,
                                 [](int32_t token) { return token < 1000; });
  };
  EXPECT_EQ(from_small({}), 2) << "by their sizes";
  EXPECT_EQ(from_small({3, 1}), 6);
  EXPECT_EQ(from_small({1, 1}), 4);
}

// --- validation ---

std::vector<int32_t> validated(const std::vector<const DataSet*>& sets, int ranks, uint64_t most) {
  std::vector<int32_t> tokens;
  for (int rank = 0; rank < ranks; ++rank) {
    const Feed feed(sets, {.micro_batch = 4, .samples = 1, .rank = rank, .ranks = ranks});
    const StepFeed part = feed.validation(most);
    EXPECT_LE(part.own.size(), part.passes);
    EXPECT_FALSE(part.own.empty());
    for (const Batch& batch : part.own) {
      if (batch.weight == 0) continue;
      tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
      EXPECT_THAT(batch.targets, Each(-1)) << "held out";
    }
  }
  return tokens;
}

TEST(Feed, ValidatesOnEverythingHeldOutOrOnSomeOfIt) {
  const Numbers set(100, 10);
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_THAT(validated({&set}, ranks, 99), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_THAT(validated({&set}, ranks, 5), ElementsAre(0, 2, 4, 6, 8)) << "evenly spread";
  }
  const Numbers other(5, 30, 1000);
  const std::vector<int32_t> tokens = validated({&set, &other}, 2, 8);
  EXPECT_THAT(tokens, ElementsAre(0, 5, 1000, 1005, 1010, 1015, 1020, 1025));
}

// --- invalid options ---

std::string refusal(const FeedOptions& options, std::vector<const DataSet*> sets) {
  try {
    const Feed feed(std::move(sets), options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Feed, RefusesOptionsThatMakeNoSense) {
  const Numbers set(10, 1), empty(0, 1);
  EXPECT_THAT(refusal({.batch = 0}, {&set}), HasSubstr("steps of 0 samples"));
  EXPECT_THAT(refusal({.micro_batch = 0}, {&set}), HasSubstr("micro-batches of 0"));
  EXPECT_THAT(refusal({.weights = {1, 2}}, {&set}), HasSubstr("1 data sets were given, but 2"));
  EXPECT_THAT(refusal({.weights = {-1}}, {&set}), HasSubstr("-1"));
  EXPECT_NE(refusal({}, {}), "accepted");
  EXPECT_NE(refusal({}, {&empty}), "accepted");
}

// The three clients have 3, 3 and 4 of the 10 samples of each step.
TEST(Feed, ClientsGoThroughExamplesOfTheirOwn) {
  const Numbers set(60, 5);
  FeedOptions options{
      .batch = 10, .micro_batch = 1, .samples = 62, .ranks = 3, .labels_per_client = 4};
  std::vector<int32_t> all;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    const Feed feed({&set}, options);
    std::map<int32_t, std::vector<int32_t>> by_epoch;
    const auto loader = feed.steps_from(0);
    while (const std::optional<StepFeed> step = loader->next()) {
      for (const Batch& batch : step->own) {
        if (batch.weight == 0) continue;
        const auto label = static_cast<uint8_t>(batch.tokens[0] % 10);
        EXPECT_LT((label + 10 - 4 * options.rank % 10) % 10, 4);
        by_epoch[batch.targets[0]].push_back(batch.tokens[0]);
      }
    }
    std::vector<int32_t> first = by_epoch[0];
    std::ranges::sort(first);
    EXPECT_EQ(std::ranges::adjacent_find(first), first.end()) << "each once";
    const size_t own = static_cast<size_t>(ClientSet(set, {4, options.rank, 3}).size());
    const size_t taken = first.size() + by_epoch[1].size();
    EXPECT_EQ(first.size(), std::min(own, taken));
    EXPECT_DOUBLE_EQ(feed.epochs(feed.steps())[0],
                     static_cast<double>(taken) / static_cast<double>(own));
    all.insert(all.end(), first.begin(), first.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << "one client has it";
}

TEST(FeedTest, ReportsTheEpochsOfEachDataSet) {
  const Numbers a(10, 1), b(2, 1);
  const Feed feed({&a, &b}, {.batch = 8, .micro_batch = 4, .samples = 20, .weights = {1, 1}});
  EXPECT_THAT(feed.epochs(0), ElementsAre(0, 0));
  EXPECT_THAT(feed.epochs(1), ElementsAre(0.4, 2));
  EXPECT_THAT(feed.epochs(3), ElementsAre(1, 5)) << "the last step is a smaller one";
}

// Each step has one sample. Each worker must prepare a step before any step is consumed.
TEST(Feed, EachWorkerPreparesAStepAhead) {
  for (const int workers : {1, 2, 5}) {
    const Meeting set(workers);
    const Feed feed({&set}, {.batch = 1, .micro_batch = 1, .samples = 20, .workers = workers});
    const auto loader = feed.steps_from(0);
    ASSERT_TRUE(loader->next());
    EXPECT_TRUE(set.has_met()) << workers << " workers";
  }
}

}  // namespace
}  // namespace tutti::training
