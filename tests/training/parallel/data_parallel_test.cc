#include "training/parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "training/parallel/storage.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

// Three units that compute nothing. The last one also uses the parameter of the first one. The
// sizes are odd, and one parameter is smaller than the alignment of a shard.
class Still : public Model {
 public:
  Still() {
    add_unit<Quiet>("a", 70, nullptr);
    add_unit<Quiet>("b", 7, nullptr);
    add_unit<Quiet>("c", 129, static_cast<const Quiet&>(*units_.front()).weight);
  }
  double flops_per_sample() const override { return 0; }
  Json configuration() const override { return {{"kind", "still"}}; }
  int64_t targets_per_sample() const override { return 1; }

 private:
  struct Quiet : Unit {
    Quiet(ParameterTable& table, const std::string& name, int64_t count, const Parameter* shared)
        : weight(table.add(name, {count}, {})), name_(name) {
      if (shared != nullptr) table.share(shared);
    }
    std::string name() const override { return name_; }
    OutputShape output_shape() const override { return {}; }
    Tensor forward(Pass&, ConstTensor) override { return {}; }
    Tensor backward(Pass&, ConstTensor) override { return {}; }

    const Parameter* weight;
    std::string name_;
  };
};

enum Unit : int { kFirst, kMiddle, kLast };

// Buckets are numbered in the order in which backward completes them: c, b, a.
StorageOptions one_bucket_each(int stage) {
  return {.stage = stage, .one_pass = true, .bucket_elements = 1, .first_bucket_elements = 1};
}

struct Rank {
  Rank(const Job& job, const StorageOptions& storage_options,
       const DataParallelOptions& options = {}, std::unique_ptr<CommunicationHook> hook = nullptr)
      : communicator(Communicator::init(job)),
        storage(communicator, model.parameters(), storage_options),
        parallel(model, storage, options, std::move(hook)) {}

  // Plays the backward pass of a unit, which adds `value` to all its gradients.
  void backward(int unit, float value) {
    parallel.before_backward(unit);
    add_gradients(unit, value);
    parallel.after_backward(unit);
    parallel.after_weights(unit);
  }
  void add_gradients(int unit, float value) {
    for (const int parameter : model.parameters().used_by(unit)) {
      for (float& element : gradient(parameter)) element += value;
    }
  }
  std::span<float> gradient(int parameter) {
    return model.parameters().at(parameter).gradient.values<float>();
  }
  void shadow_backward(int unit) {
    parallel.before_backward(unit);
    parallel.after_backward(unit);
    parallel.after_weights(unit);
  }
  // Returns the gradient of each parameter: -1 if this rank has no part of it, 0 if its elements
  // differ.
  std::vector<float> sums() const {
    std::vector<float> sums(3, -1);
    for (const OwnedPiece& piece : storage.owned()) {
      float& sum = sums[static_cast<size_t>(piece.piece.parameter)];
      const auto values = piece.gradient.values<float>();
      const bool same = std::ranges::all_of(values, [&](float v) { return v == values[0]; });
      sum = same ? values[0] : 0;
    }
    return sums;
  }

  Still model;
  Communicator communicator;
  ParameterStorage storage;
  DataParallel parallel;
};

// Compares the gradients of those parameters of which this rank has a part (which are not -1).
bool equal_where_owned(const std::vector<float>& sums, const std::vector<float>& expected) {
  return std::ranges::equal(sums, expected, [](float a, float b) { return a == -1 || a == b; });
}

class Stages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Zero, Stages, ::testing::Values(0, 1, 2, 3));

TEST_P(Stages, GradientsAreSummedOverRanks) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool overlap : {true, false}) {
      run_ranks(ranks, [&](const Job& job) {
        Rank rank(job, one_bucket_each(GetParam()), {.overlap = overlap});
        const auto own = static_cast<float>(job.rank + 1);
        const auto all = static_cast<float>(ranks * (ranks + 1) / 2);
        for (int step = 0; step < 3; ++step) {
          rank.parallel.begin_step(1);
          rank.backward(kLast, own);
          rank.backward(kMiddle, 10 * own);
          rank.backward(kFirst, 100 * own);
          rank.parallel.finish_gradients();
          EXPECT_TRUE(equal_where_owned(rank.sums(), {101 * all, 10 * all, all}))
              << ::testing::PrintToString(rank.sums());
        }
      });
    }
  }
}

TEST_P(Stages, PassesAreAccumulatedAndRanksMayHaveFewer) {
  run_ranks(3, [&](const Job& job) {
    for (const bool shard_sums : {false, true}) {
      StorageOptions options = one_bucket_each(GetParam());
      options.one_pass = false;
      options.shard_sums = shard_sums;
      Rank rank(job, options);
      EXPECT_EQ(rank.storage.whole_gradients(), GetParam() < 2 || !shard_sums);
      for (int step = 0; step < 2; ++step) {
        rank.parallel.begin_step(2);
        for (int pass = 0; pass < 2; ++pass) {
          for (const int unit : {kLast, kMiddle, kFirst}) {
            // Rank 2 has only one micro-batch.
            if (pass == 1 && job.rank == 2) {
              rank.shadow_backward(unit);
            } else {
              rank.backward(unit, static_cast<float>(job.rank + 1));
            }
          }
        }
        rank.parallel.finish_gradients();
        EXPECT_TRUE(equal_where_owned(rank.sums(), {18, 9, 9}))
            << ::testing::PrintToString(rank.sums());
      }
    }
  });
}

TEST_P(Stages, GradientsAreSummedInF32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    run_ranks(2, [&](const Job& job) {
      Rank rank(job, {.stage = GetParam(), .dtype = dtype});
      for (const OwnedPiece& piece : rank.storage.owned()) {
        EXPECT_EQ(piece.gradient.dtype, DType::f32);
        EXPECT_EQ(piece.value.dtype, dtype);
      }
    });
  }
}

TEST_P(Stages, OnePassAllocatesNoSecondBuffer) {
  const auto errors = run_ranks_catching(2, [&](const Job& job) {
    Rank rank(job, one_bucket_each(GetParam()));
    rank.parallel.begin_step(2);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(),
                HasSubstr("2 micro-batches per rank, but there is only memory for one"));
  }
}

TEST_P(Stages, PublishedValuesReachAllRanks) {
  run_ranks(3, [&](const Job& job) {
    Rank rank(job, one_bucket_each(GetParam()));
    // Sets element i of parameter p to 1000 p + i.
    rank.storage.fill_owned([](const OwnedPiece& piece, std::span<float> values) {
      std::iota(values.begin(), values.end(),
                static_cast<float>(1000 * piece.piece.parameter + piece.piece.first));
    });
    rank.parallel.publish_values();
    for (int unit = kFirst; unit <= kLast; ++unit) {
      rank.parallel.before_forward(unit);
      for (const int parameter : rank.model.parameters().used_by(unit)) {
        const auto values = rank.model.parameters().at(parameter).value.values<float>();
        ASSERT_EQ(std::ssize(values),
                  rank.model.parameters().specs()[static_cast<size_t>(parameter)].count());
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(values[i], static_cast<float>(1000 * parameter) + static_cast<float>(i));
        }
      }
      rank.parallel.after_forward(unit);
    }
  });
}

TEST(Stage3, KeepsNoMoreThanOneUnitAndTheNext) {
  run_ranks(2, [&](const Job& job) {
    Rank rank(job, one_bucket_each(3));
    rank.parallel.publish_values();
    const auto present = [&] {
      std::string names;
      for (int p = 0; p < 3; ++p) {
        if (!rank.model.parameters().at(p).value.empty()) names += "abc"[p];
      }
      return names;
    };
    EXPECT_EQ(present(), "");
    rank.parallel.before_forward(kFirst);
    EXPECT_EQ(present(), "ab") << "the next one is being gathered";
    rank.parallel.after_forward(kFirst);
    EXPECT_EQ(present(), "b");
    rank.parallel.before_forward(kMiddle);
    EXPECT_EQ(present(), "abc") << "the last one uses a, too";
    rank.parallel.after_forward(kMiddle);
    EXPECT_EQ(present(), "ac");
    rank.parallel.before_forward(kLast);
    rank.parallel.after_forward(kLast);
    EXPECT_EQ(present(), "ac") << "backward begins with it";
    rank.parallel.begin_step(1);
    rank.shadow_backward(kLast);
    EXPECT_EQ(present(), "b");
    rank.shadow_backward(kMiddle);
    EXPECT_EQ(present(), "a");
    rank.shadow_backward(kFirst);
    EXPECT_EQ(present(), "");
    rank.parallel.finish_gradients();
  });
}

// --- the order of sums ---

// Records the requests in order, without summing anything.
class Recorder : public CommunicationHook {
 public:
  Recorder(std::vector<int>& started, std::vector<int>& finished)
      : started_(started), finished_(finished) {}
  void start(Communicator&, int bucket, Tensor) override { started_.push_back(bucket); }
  void finish(int bucket, Tensor) override { finished_.push_back(bucket); }
  int64_t bytes() const override { return 0; }
  int64_t payload_bytes(int, Tensor) const override { return 500; }

 private:
  std::vector<int>& started_;
  std::vector<int>& finished_;
};

TEST(Buckets, LaunchOrderDoesNotFollowBackward) {
  std::vector<int> started, finished;
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, one_bucket_each(0), {}, std::make_unique<Recorder>(started, finished));
    rank.parallel.begin_step(1);
    rank.shadow_backward(kMiddle);
    EXPECT_THAT(started, ElementsAre()) << "bucket 0 is not ready";
    rank.shadow_backward(kLast);
    EXPECT_THAT(started, ElementsAre(0, 1));
    EXPECT_THAT(finished, ElementsAre()) << "backward goes on meanwhile";
    rank.shadow_backward(kFirst);
    EXPECT_THAT(started, ElementsAre(0, 1, 2));
    rank.parallel.finish_gradients();
    EXPECT_THAT(finished, ElementsAre(0, 1, 2));
  });
}

TEST(Buckets, WaitForTheLastPass) {
  std::vector<int> started, finished;
  StorageOptions options = one_bucket_each(0);
  options.one_pass = false;
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, options, {}, std::make_unique<Recorder>(started, finished));
    rank.parallel.begin_step(2);
    for (const int unit : {kLast, kMiddle, kFirst}) rank.shadow_backward(unit);
    EXPECT_THAT(started, ElementsAre());
    rank.shadow_backward(kLast);
    EXPECT_THAT(started, ElementsAre(0));
    for (const int unit : {kMiddle, kFirst}) rank.shadow_backward(unit);
    rank.parallel.finish_gradients();
    EXPECT_THAT(finished, ElementsAre(0, 1, 2));
  });
}

TEST(Buckets, SumsBlockWithoutOverlap) {
  std::vector<int> started, finished;
  run_ranks(1, [&](const Job& job) {
    Rank rank(job, one_bucket_each(0), {.overlap = false},
              std::make_unique<Recorder>(started, finished));
    rank.parallel.begin_step(1);
    rank.shadow_backward(kLast);
    EXPECT_THAT(finished, ElementsAre(0));
    rank.shadow_backward(kMiddle);
    EXPECT_THAT(finished, ElementsAre(0, 1));
    rank.shadow_backward(kFirst);
    rank.parallel.finish_gradients();
  });
}

TEST(Hooks, HooksRequireStage0) {
  std::vector<int> started, finished;
  for (const int stage : {1, 2, 3}) {
    const auto errors = run_ranks_catching(1, [&](const Job& job) {
      Rank rank(job, one_bucket_each(stage), {}, std::make_unique<Recorder>(started, finished));
    });
    ASSERT_TRUE(errors[0]);
    EXPECT_EQ(errors[0]->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(errors[0]->what(), HasSubstr(cat("ZeRO stage ", stage)));
  }
}

// --- parameters that backward does not reach ---

TEST_P(Stages, UnusedParametersAreNamedOnEveryRank) {
  const auto errors = run_ranks_catching(2, [&](const Job& job) {
    Rank rank(job, one_bucket_each(GetParam()));
    rank.parallel.begin_step(1);
    rank.backward(kLast, 1);
    rank.backward(kFirst, 1);
    rank.parallel.finish_gradients();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("did not reach the parameters b"),
                                     HasSubstr("allow unused"), Not(HasSubstr("b, c"))));
  }
}

TEST(Unused, ASharedParameterIsUnusedIfOneOfItsUnitsIs) {
  const auto errors = run_ranks_catching(1, [&](const Job& job) {
    Rank rank(job, one_bucket_each(0));
    rank.parallel.begin_step(1);
    rank.backward(kLast, 1);
    rank.parallel.finish_gradients();
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_THAT(errors[0]->what(), HasSubstr("did not reach the parameters a, b"));
}

TEST_P(Stages, UnusedGradientsAreZeroIfAllowed) {
  run_ranks(2, [&](const Job& job) {
    Rank rank(job, one_bucket_each(GetParam()), {.allow_unused = true});
    for (int step = 0; step < 2; ++step) {
      rank.parallel.begin_step(1);
      rank.backward(kLast, 1);
      rank.backward(kFirst, 1);
      rank.parallel.finish_gradients();
      EXPECT_TRUE(equal_where_owned(rank.sums(), {4, 0, 2}))
          << ::testing::PrintToString(rank.sums());
    }
  });
}

}  // namespace
}  // namespace tutti::training
