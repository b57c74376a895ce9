// Tests the creation, use and release of weight versions, without a pipeline.
#include "training/pipeline/weight_versions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti::training::pipeline {
namespace {

using tutti::testing::run_ranks;

// A parameter. All its elements are equal, and differ between versions.
struct Weights {
  explicit Weights(const Job& job)
      : weight(table.add("w", {5}, {Initial::Kind::constant, 0})),
        storage(Communicator::init(job), table, {}),
        versions(storage) {
    set(0);
  }
  // Plays an update of the optimizer, which writes the storage's own memory.
  void set(float value) { std::ranges::fill(storage.owned().front().master, value); }
  void update(float value) {
    versions.before_update();
    set(value);
  }
  // Plays an entry that uses this version. Returns the value that it reads.
  float compute(int version) {
    versions.use(version);
    const float seen = weight->value.values<float>().back();
    versions.done(version);
    return seen;
  }

  ParameterTable table;
  const Parameter* weight;
  ParameterStorage storage;
  WeightVersions versions;
};

// Returns a plan whose entries use these versions, one after another. begin() does not depend on
// when updates happen.
RankPlan plan_of(const std::vector<int>& computed, int updates) {
  RankPlan plan;
  for (const int version : computed) {
    plan.actions.push_back({.kind = Action::Kind::compute, .version = version});
  }
  for (int version = 1; version <= updates; ++version) {
    plan.actions.push_back({.kind = Action::Kind::update, .version = version});
  }
  return plan;
}

void with_weights(const std::function<void(Weights&)>& body) {
  run_ranks(1, [&](const Job& job) {
    Weights weights(job);
    body(weights);
  });
}

TEST(WeightVersions, OldOnesAreKeptUntilTheirLastUse) {
  with_weights([](Weights& weights) {
    weights.versions.begin(plan_of({0, 0, 1, 0, 1, 2}, 2));
    EXPECT_EQ(weights.compute(0), 0);
    weights.update(1);
    EXPECT_EQ(weights.compute(0), 0) << "stashed";
    EXPECT_EQ(weights.compute(1), 1);
    weights.update(2);
    EXPECT_EQ(weights.versions.most_versions(), 3);
    EXPECT_EQ(weights.compute(0), 0) << "for the last time";
    EXPECT_EQ(weights.compute(1), 1);
    EXPECT_EQ(weights.compute(2), 2);
    EXPECT_EQ(weights.versions.most_versions(), 3);
  });
}

TEST(WeightVersions, UnusedVersionsAreNotCopied) {
  with_weights([](Weights& weights) {
    weights.versions.begin(plan_of({0, 1, 3}, 3));
    EXPECT_EQ(weights.compute(0), 0);
    weights.update(1);  // version 0 has been used for the last time
    EXPECT_EQ(weights.compute(1), 1);
    weights.update(2);
    weights.update(3);  // version 2 is never used
    EXPECT_EQ(weights.compute(3), 3);
    EXPECT_EQ(weights.versions.most_versions(), 1);
    EXPECT_EQ(weights.storage.pool().bytes(), 0);
  });
}

TEST(WeightVersions, TwoBuffersSufficeForTwoVersions) {
  with_weights([](Weights& weights) {
    const auto one = static_cast<int64_t>(weights.storage.all_values().bytes());
    for (int run = 0; run < 2; ++run) {
      weights.set(0);
      weights.versions.begin(plan_of({0, 0, 1, 2, 3}, 4));
      EXPECT_EQ(weights.compute(0), 0);
      for (int version = 1; version <= 4; ++version) {
        weights.update(static_cast<float>(version));
        EXPECT_EQ(weights.compute(version - 1), static_cast<float>(version - 1)) << "one late";
      }
      weights.versions.end();
    }
    EXPECT_EQ(weights.versions.most_versions(), 2);
    EXPECT_EQ(weights.storage.pool().bytes(), one) << "the same buffer again and again";
  });
}

TEST(WeightVersions, AtTheEndTheParametersAreTheStoragesOwn) {
  with_weights([](Weights& weights) {
    const std::byte* own = weights.weight->value.data;
    weights.versions.begin(plan_of({0, 0}, 1));
    weights.compute(0);
    weights.update(7);
    weights.versions.use(0);
    EXPECT_NE(weights.weight->value.data, own);
    weights.versions.done(0);
    weights.versions.end();
    EXPECT_EQ(weights.weight->value.data, own);
    EXPECT_EQ(weights.weight->value.values<float>().front(), 7);

    weights.versions.begin(plan_of({0}, 0));
    EXPECT_EQ(weights.compute(0), 7) << "the next run's version 0";
  });
}

TEST(WeightVersions, CopiesOfAFailedRunAreFreedByTheNext) {
  with_weights([](Weights& weights) {
    const std::byte* own = weights.weight->value.data;
    const auto one = static_cast<int64_t>(weights.storage.all_values().bytes());
    for (int run = 0; run < 3; ++run) {
      weights.versions.begin(plan_of({0, 0}, 1));
      EXPECT_EQ(weights.weight->value.data, own) << "not in a copy of the run before";
      weights.compute(0);
      weights.update(7);
      weights.versions.use(0);  // the run fails here
      EXPECT_NE(weights.weight->value.data, own);
    }
    EXPECT_EQ(weights.storage.pool().bytes(), one) << "the same buffer again and again";
  });
}

}  // namespace
}  // namespace tutti::training::pipeline
