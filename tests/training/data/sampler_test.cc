#include "training/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

std::vector<uint64_t> examples(const Sampler& sampler, uint64_t first, uint64_t end) {
  std::vector<uint64_t> found;
  for (uint64_t i = first; i < end; ++i) found.push_back(sampler.sample(i).example);
  return found;
}

constexpr uint64_t kSizes[] = {1, 2, 3, 16, 17, 64, 65, 100, 1024, 1025};

TEST(SamplerTest, AnEpochHasEveryExampleOnce) {
  for (const uint64_t size : kSizes) {
    const Sampler sampler({{.size = size}}, 1);
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<uint64_t> seen;
      for (uint64_t i = epoch * size; i < (epoch + 1) * size; ++i) {
        const Sample sample = sampler.sample(i);
        ASSERT_EQ(sample.epoch, epoch);
        ASSERT_EQ(sample.data_set, 0u);
        ASSERT_LT(sample.example, size);
        ASSERT_TRUE(seen.insert(sample.example).second);
      }
      ASSERT_EQ(seen.size(), size);
    }
  }
}

// Rank r of p ranks takes the indices that are congruent to r modulo p.
TEST(SamplerTest, RanksTakeDisjointSamplesAndAllOfThem) {
  for (const uint64_t size : kSizes) {
    const Sampler sampler({{.size = size}}, 1);
    for (uint64_t ranks = 1; ranks <= 8; ++ranks) {
      std::multiset<uint64_t> taken;
      for (uint64_t rank = 0; rank < ranks; ++rank) {
        for (uint64_t i = rank; i < size; i += ranks) taken.insert(sampler.sample(i).example);
      }
      std::vector<uint64_t> all(size);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_TRUE(std::equal(taken.begin(), taken.end(), all.begin(), all.end()))
          << size << " examples, " << ranks << " ranks";
    }
  }
}

TEST(SamplerTest, IsReshuffledByEpochSeedAndDataSet) {
  const Sampler sampler({{.size = 100}}, 1);
  EXPECT_NE(examples(sampler, 0, 100), examples(sampler, 100, 200));
  EXPECT_NE(examples(sampler, 0, 100), examples(Sampler({{.size = 100}}, 2), 0, 100));
  const Sampler both({{.size = 100}, {.size = 100}}, 1);
  std::vector<uint64_t> of[2];
  for (uint64_t i = 0; i < 200; ++i) of[both.sample(i).data_set].push_back(both.sample(i).example);
  ASSERT_EQ(of[0].size(), 100u);
  EXPECT_NE(of[0], of[1]);
  EXPECT_EQ(of[0], examples(sampler, 0, 100))
      << "its own order, whatever other data sets there are";
}

// The sampler has no state, so that any order of calls, and a new sampler, give the same samples.
TEST(SamplerTest, RandomAccessEqualsSequential) {
  const std::vector<SampledSet> sets = {{17, 0.5}, {64, 0.3}, {5, 0.2}};
  const Sampler sampler(sets, 3);
  std::vector<Sample> sequential;
  for (uint64_t i = 0; i < 1000; ++i) sequential.push_back(sampler.sample(i));
  for (uint64_t i = 1000; i-- > 0;) {
    ASSERT_EQ(sampler.sample(i), sequential[i]);
    if (i % 100 == 0) {
      ASSERT_EQ(Sampler(sets, 3).sample(i), sequential[i]);
    }
  }
}

// Expects each data set's count to be within 1 + `slack` of its share at any moment, over several
// cycles, and each data set to have its own epochs, independent of the other sets.
void expect_shares(const std::vector<double>& weights, uint64_t samples, double slack = 0) {
  std::vector<SampledSet> sets;
  sets.reserve(weights.size());
  for (const double weight : weights) sets.push_back({.size = 7 + sets.size(), .weight = weight});
  const Sampler sampler(sets, 1);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> taken(sets.size());
  std::vector<std::set<uint64_t>> seen(sets.size());
  for (uint64_t i = 0; i < samples; ++i) {
    const auto [set, example, epoch] = sampler.sample(i);
    ASSERT_EQ(epoch, taken[set] / sets[set].size);
    if (taken[set] % sets[set].size == 0) seen[set].clear();
    ASSERT_TRUE(seen[set].insert(example).second);
    ++taken[set];
    for (size_t d = 0; d < sets.size(); ++d) {
      const double share = weights[d] / sum * static_cast<double>(i + 1);
      ASSERT_LT(std::abs(static_cast<double>(taken[d]) - share), 1 + slack)
          << "data set " << d << " after " << i + 1 << " samples";
    }
  }
}

TEST(SamplerTest, SharesAreExactAtEveryMoment) {
  constexpr double kRounding = 1e-6;  // rounding error of the sums in this test
  expect_shares({1}, 100, kRounding);
  expect_shares({1, 1}, 100, kRounding);
  expect_shares({0.7, 0.2, 0.1}, 1000, kRounding);
  expect_shares({3, 3, 3}, 100, kRounding);
  expect_shares({0.60, 0.22, 0.08, 0.08, 0.03}, 5000, kRounding);  // 1.01 in all
  expect_shares({10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1000, kRounding);
  expect_shares({1e300, 2e300}, 100, kRounding);
  expect_shares({1e-300, 2e-300}, 100, kRounding);
  expect_shares({338025, 36059}, 800000, kRounding);
}

TEST(SamplerTest, SharesThatNoCycleHasAreRounded) {
  // The shares are rounded to multiples of 2^-20. In the first 2^20 samples, a count is therefore
  // off by at most half a sample.
  expect_shares({std::sqrt(2), 1, std::acos(-1.0)}, 300000, 0.5);
}

TEST(SamplerTest, ATinyWeightIsNotForgotten) {
  const Sampler sampler({{10, 1}, {10, 1e-12}}, 1);
  uint64_t tiny = 0;
  constexpr uint64_t kTwoCycles = uint64_t{1} << 21;
  for (uint64_t i = 0; i < kTwoCycles + 2; ++i) tiny += sampler.sample(i).data_set;
  EXPECT_EQ(tiny, 2u);
}

TEST(SamplerTest, CountsWhatItHasTaken) {
  for (const std::vector<double>& weights : {std::vector<double>{0.7, 0.2, 0.1}, {1, 1}, {5}}) {
    std::vector<SampledSet> sets;
    for (const double weight : weights) sets.push_back({.size = 13, .weight = weight});
    const Sampler sampler(sets, 3);
    std::vector<uint64_t> taken(sets.size());
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_EQ(sampler.taken(i), taken) << i;
      ++taken[sampler.sample(i).data_set];
    }
  }
}

// The weights are those of GPT-3 (Brown et al., Language models are few-shot learners, 2020, table
// 2.2), with one sample per million tokens. The paper states 0.44, 2.9, 1.9, 0.43 and 3.4 epochs
// for 300 billion tokens; its weights, which are rounded and sum to 101 %, imply 0.43, 3.4, 2.0,
// 0.43 and 3.0.
TEST(SamplerTest, MixesDataAsForGpt3) {
  const Sampler sampler({{.size = 410'000, .weight = 60},
                         {.size = 19'000, .weight = 22},
                         {.size = 12'000, .weight = 8},
                         {.size = 55'000, .weight = 8},
                         {.size = 3'000, .weight = 3}},
                        1);
  const std::vector<uint64_t> taken = sampler.taken(300'000);
  const uint64_t wanted[] = {178'218, 65'347, 23'762, 23'762,
                             8'911};  // samples out of 300 000, in proportion to the weights
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(static_cast<double>(taken[i]), static_cast<double>(wanted[i]), 1) << i;
  }
  std::map<size_t, uint64_t> epochs;  // data set -> the last epoch that has begun
  for (uint64_t i = 0; i < 300'000; ++i) {
    const Sample sample = sampler.sample(i);
    epochs[sample.data_set] = std::max(epochs[sample.data_set], sample.epoch);
  }
  EXPECT_EQ(epochs, (std::map<size_t, uint64_t>{{0, 0}, {1, 3}, {2, 1}, {3, 0}, {4, 2}}));
}

TEST(SamplerTest, ContinuesFarBeyondAnyRun) {
  const Sampler sampler({{1000, 0.7}, {10, 0.3}}, 1);
  const Sample late = sampler.sample(uint64_t{10} << 50);
  EXPECT_EQ(late.epoch, (uint64_t{7} << 50) / 1000 * (late.data_set == 0) +
                            (uint64_t{3} << 50) / 10 * (late.data_set == 1));
}

TEST(SamplerTest, RefusesWhatCannotBeSampled) {
  const auto refusal = [](std::vector<SampledSet> sets) {
    return error_of([&] { const Sampler sampler(sets, 1); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("from 0 data sets"));
  EXPECT_THAT(refusal({{1}, {0}}), HasSubstr("data set 1 has no examples"));
  EXPECT_THAT(refusal({{1, 0}}), HasSubstr("weight of data set 0 is 0"));
  EXPECT_THAT(refusal({{1, -1}}), HasSubstr("weight of data set 0 is -1"));
  EXPECT_THAT(refusal({{1, std::nan("")}}), HasSubstr("weight of data set 0 is"));
  EXPECT_THAT(refusal({{1, std::numeric_limits<double>::infinity()}}), HasSubstr("is inf"));
}

}  // namespace
}  // namespace tutti::training
