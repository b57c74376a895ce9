// Tests one rank's replica of a model: gradients in a step, and the errors that stop the step.
#include "training/engine/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/support/model_pass.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using testing::Deterministic;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TinyRank;
using testing::TinyRun;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TinyRun run_of(int stage, DType dtype = DType::f32) {
  TinyRun run;
  run.replica.storage.stage = stage;
  run.replica.storage.dtype = dtype;
  run.replica.storage.bucket_elements = 1 << 13;
  return run;
}

// Sets the first element of this rank's part of a parameter, if it has a part.
void set(Replica& replica, const std::string& parameter, float value) {
  for (const OwnedPiece& piece : replica.owned()) {
    if (piece.spec->name == parameter) replica.values_of(piece, 0).values<float>()[0] = value;
  }
}

// --- non-finite values ---

class NotFinite : public ::testing::TestWithParam<int> {};

TEST_P(NotFinite, AWeightIsFoundByStepRankAndLayer) {
  for (const float poison : {kNan, kInfinity}) {
    const auto errors = run_ranks_catching(3, [&](const Job& job) {
      TinyRank rank(job, run_of(GetParam()));
      rank.step();
      // If values are sharded, all ranks have the same values; otherwise one rank can have other
      // values.
      if (GetParam() > 0 || job.rank == 1) set(rank.replica, "h.1.attn.c_attn.weight", poison);
      rank.replica.publish();
      rank.step();
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error->what(), AllOf(HasSubstr("step 2: the output of h.1 on "),
                                       HasSubstr(GetParam() > 0 ? "rank 0" : "rank 1"),
                                       HasSubstr("is not finite"), HasSubstr("learning rate")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, NotFinite, ::testing::Values(0, 1, 2, 3));

// A model with one parameter w of 64 equal elements. Each sample has a loss of 0.5, and the test
// sets its gradient.
class OneNumber : public Model {
 public:
  OneNumber() { add_unit<Only>(&told); }
  double flops_per_sample() const override { return 1; }
  Json configuration() const override { return {{"kind", "one"}}; }
  int64_t targets_per_sample() const override { return 1; }

  float told = 1;

 private:
  class Only : public Unit {
   public:
    Only(ParameterTable& table, const float* told)
        : weight_(table.add("w", {64}, {Initial::Kind::constant, 1})), told_(told) {}
    std::string name() const override { return "only"; }
    OutputShape output_shape() const override { return {}; }
    Tensor forward(Pass& pass, ConstTensor) override {
      pass.loss = Loss{.sum = 0.5};
      return pass.arena.take(pass.dtype, 1, 1);
    }
    Tensor backward(Pass& pass, ConstTensor) override {
      for (float& value : weight_->gradient.values<float>()) {
        value += *told_ * static_cast<float>(pass.loss_scale);
      }
      return {};
    }

   private:
    const Parameter* weight_;
    const float* told_;
  };
};

// Trains with SGD at a learning rate of 1, so that a step subtracts the given gradient from w,
// which starts at 1.
struct OneNumberRank {
  explicit OneNumberRank(const Job& job, ReplicaOptions options = {},
                         const Json& optimizer = {{"name", "sgd"}, {"momentum", 0}})
      : replica(Communicator::init(job), model, make_optimizer(optimizer), options) {}

  // Runs a step in which each rank has one sample.
  StepResult step(int64_t number = 1) {
    const MicroBatch batch{.samples = 1};
    return replica.step({.own = {&batch, 1}, .targets = replica.world().size()}, number, 1);
  }
  float value() const { return replica.values_of(replica.owned().at(0), 0).values<float>()[0]; }

  OneNumber model;
  Replica replica;
};

TEST(NotFiniteGradient, IsFoundByParameterBeforeAnyReduction) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto errors = run_ranks_catching(3, [&](const Job& job) {
      OneNumberRank rank(job, {.storage = {.stage = stage}});
      rank.model.told = job.rank == 2 ? kInfinity : 1;
      rank.step(7);
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error->what(), AllOf(HasSubstr("step 7: the gradient of w on rank 2"),
                                       HasSubstr("before any reduction, is not finite")));
    }
  }
}

TEST(NotFiniteGradient, OnlyTheSumMayBeNotFinite) {
  const auto errors = run_ranks_catching(2, [&](const Job& job) {
    OneNumberRank rank(job);
    rank.model.told = std::numeric_limits<float>::max();
    const MicroBatch batch{.samples = 1};
    rank.replica.step({.own = {&batch, 1}, .targets = 1}, 3, 1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("step 3: the gradients' sum over ranks is not finite"));
  }
}

// --- overflow, with a scaled loss ---

TEST(Overflow, SkipsTheStepNamesThePlaceAndHalvesTheScale) {
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks(3, [&](const Job& job) {
      OneNumberRank rank(job, {.storage = {.stage = stage},
                               .loss_scaling = LossScalerOptions{.initial_scale = 1024}});
      rank.model.told = job.rank == 1 ? kInfinity : 1;
      const StepResult broken = rank.step(1);
      EXPECT_TRUE(broken.skipped);
      EXPECT_EQ(broken.loss_scale, 1024);
      EXPECT_THAT(broken.overflow, HasSubstr("the gradient of w on rank 1"));
      if (!rank.replica.owned().empty()) {
        EXPECT_EQ(rank.value(), 1) << "nothing was updated";
      }

      rank.model.told = 0.25;
      const StepResult good = rank.step(2);
      EXPECT_FALSE(good.skipped);
      EXPECT_EQ(good.loss_scale, 512);
      EXPECT_EQ(good.overflow, "");
      EXPECT_EQ(good.gradient_norm, 2) << "unscaled: sqrt(64) / 4";
      if (!rank.replica.owned().empty()) {
        EXPECT_EQ(rank.value(), 0.75);
      }
    });
  }
}

// The first update of Adam has the size of the learning rate for any gradient, if its bias
// correction counts updates instead of steps.
TEST(Overflow, SkippedStepsAreNoUpdatesOfAdam) {
  for (const std::string optimizer : {"adamw", "lamb"}) {
    const auto values_after = [&](int skipped) {
      std::vector<float> values;
      run_ranks(1, [&](const Job& job) {
        OneNumberRank rank(
            job, {.loss_scaling = LossScalerOptions{.initial_scale = 1024, .hysteresis = 100}},
            {{"name", optimizer}, {"weight_decay", 0}});
        rank.model.told = kInfinity;
        for (int step = 1; step <= skipped; ++step) EXPECT_TRUE(rank.step(step).skipped);
        EXPECT_EQ(rank.replica.updater().updates(), 0);
        for (const float told : {0.25f, 0.5f, -1.0f}) {
          rank.model.told = told;
          EXPECT_FALSE(rank.step(skipped + 1).skipped);
          values.push_back(rank.value());
        }
        EXPECT_EQ(rank.replica.updater().updates(), 3);
      });
      return values;
    };
    const std::vector<float> expected = values_after(0);
    if (optimizer == "adamw") {
      EXPECT_NEAR(expected.at(0), 0, 1e-6);
    }
    EXPECT_EQ(values_after(4), expected);
  }
}

// --- rounding ---

TEST(StochasticRounding, TakesThePlaceOfMasters) {
  for (const int stage : {0, 1, 2, 3}) {
    TinyRun run = run_of(stage, DType::bf16);
    run.replica.stochastic_rounding = true;
    run_ranks(2, [&](const Job& job) {
      TinyRank rank(job, run);
      rank.step();
      EXPECT_EQ(rank.replica.memory().storage.masters, 0);
      for (const OwnedPiece& piece : rank.replica.owned()) {
        EXPECT_EQ(rank.replica.values_of(piece, 0).dtype, DType::bf16);
      }
    });
  }
}

// Rounding to nearest would lose updates that are far below half a unit in the last place.
TEST(StochasticRounding, LearnsAsWellAsMastersDo) {
  const auto losses = [](bool rounded) {
    TinyRun run = run_of(0, DType::bf16);
    run.replica.stochastic_rounding = rounded;
    run.steps = 60;
    return testing::train(1, run).losses;
  };
  const std::vector<double> masters = losses(false);
  const std::vector<double> rounded = losses(true);
  EXPECT_LT(masters.back(), 0.7 * masters.front()) << "it learns";
  EXPECT_NEAR(rounded.back(), masters.back(), 0.05 * masters.back());
}

TEST(StochasticRounding, IsForBf16Only) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    TinyRun run = run_of(0, dtype);
    run.replica.stochastic_rounding = true;
    const auto errors = run_ranks_catching(1, [&](const Job& job) { TinyRank rank(job, run); });
    ASSERT_TRUE(errors[0]);
    EXPECT_EQ(errors[0]->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(errors[0]->what(), AllOf(HasSubstr(std::string(name(dtype))),
                                         HasSubstr("remove --stochastic-rounding")));
  }
}

TEST(Compression, HooksWithStateRefuseAChangingLossScale) {
  TinyRun run = run_of(0, DType::f16);
  run.replica.loss_scaling.emplace();
  run.powersgd.emplace();
  // The rank that throws first aborts the other, possibly before its check.
  const auto errors = run_ranks_catching(2, [&](const Job& job) { TinyRank rank(job, run); });
  for (const auto& error : errors) ASSERT_TRUE(error);
  EXPECT_THAT(cat(errors[0]->what(), errors[1]->what()),
              HasSubstr("error feedback is not available with loss scaling"));
}

// --- errors of one rank ---

// There are 2 data x 2 pipeline ranks. The replicas are destroyed in the middle of a step, without
// stack unwinding.
TEST(OwnError, EndsTheRanksOfAllPipelinesWithItsCause) {
  const auto errors = run_ranks_catching(4, [&](const Job& job) {
    const TinyRun run = run_of(0);
    Gpt model(run.model);
    testing::TokenBatch batch(1, testing::kTinyContext, run.model.vocabulary);
    if (job.rank == 1) batch.tokens[3] = 30000;
    std::optional<Error> error;
    {
      Replica replica({Communicator::init(job), {.data = 2, .pipeline = 2}}, model,
                      make_optimizer(run.optimizer), run.replica);
      const std::vector<MicroBatch> own(4, batch.micro_batch);
      try {
        replica.step({.own = own, .passes = 4, .targets = 8 * testing::kTinyContext}, 1, 1e-3);
      } catch (const Error& thrown) {
        error = thrown;
      }
    }
    if (error) throw *error;
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_THAT(error->what(), AllOf(HasSubstr("the token 30000, "), HasSubstr("rank 1 ("),
                                     HasSubstr(", stage 0, in the forward of micro-batch ")));
  }
}

// --- clipping ---

TEST(Clipping, LimitsTheNormOfAllGradientsTogether) {
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks(2, [&](const Job& job) {
      OneNumberRank rank(job, {.storage = {.stage = stage}, .clip = 4});
      rank.model.told = 0.25;
      EXPECT_EQ(rank.step(1).gradient_norm, 2) << "64 times 1/4";
      EXPECT_EQ(rank.value(), 0.75) << "below the limit nothing changes";
      rank.model.told = 8;
      EXPECT_EQ(rank.step(2).gradient_norm, 64) << "before clipping";
      EXPECT_NEAR(rank.value(), 0.25, 1e-5) << "8 times 4/64";
    });
  }
}

TEST(GradientNorm, IsTheSameInAllStages) {
  const Deterministic deterministic;
  TinyRun run = run_of(0);
  run.steps = 3;
  const Outcome expected = testing::train(3, run);
  EXPECT_THAT(expected.norms, Each(::testing::Gt(0.1)));
  for (const int stage : {1, 2, 3}) {
    run.replica.storage.stage = stage;
    EXPECT_EQ(testing::train(3, run).norms, expected.norms);
  }
}

// --- fp16 ---

// Trains with one sample per step, but divides the gradients as in a step of 2^22 tokens, which
// large models have (Chowdhery et al.: PaLM, 2022, section 5). Adam is invariant to this factor,
// but f16 is not: values below 2^-25 become 0.
std::vector<double> losses_in_a_large_batch(DType dtype, bool scaled) {
  TinyRun run = run_of(0, dtype);
  run.batch = 1;
  run.steps = 40;
  if (scaled) run.replica.loss_scaling.emplace();
  constexpr int64_t kTargets = 1 << 22;
  std::vector<double> losses;
  run_ranks(1, [&](const Job& job) {
    TinyRank rank(job, run);
    for (int64_t step = 1; const auto feed = rank.steps->next(); ++step) {
      const MicroBatch batch = feed->own.at(0).view();
      const StepResult result =
          rank.replica.step({.own = {&batch, 1}, .targets = kTargets}, step, run.learning_rate);
      losses.push_back(result.loss * kTargets / testing::kTinyContext);
    }
  });
  return losses;
}

TEST(HalfPrecision, TrainsOnlyWithAScaledLoss) {
  const std::vector<double> wide = losses_in_a_large_batch(DType::f32, false);
  const std::vector<double> unscaled = losses_in_a_large_batch(DType::f16, false);
  const std::vector<double> scaled = losses_in_a_large_batch(DType::f16, true);
  EXPECT_LT(testing::relative_difference(scaled, wide), 0.01) << "as good as f32";
  EXPECT_LT(scaled.back(), 0.4 * scaled.front()) << "it learns";
  EXPECT_GT(unscaled.back(), 0.8 * unscaled.front()) << "next to nothing of it is left";
}

// --- counts of targets ---

// Returns the losses of two steps with one micro-batch per rank. The targets of the second step are
// counted in advance from foretell(batch), which returns nothing, or all or part of the batch.
using Foretell = std::function<std::optional<MicroBatch>(const MicroBatch&, int rank)>;
std::vector<double> losses_of_two_steps(const Foretell& foretell) {
  TinyRun run = run_of(0);
  run.micro_batch = 2;
  run.steps = 2;
  std::vector<double> losses(2);
  run_ranks(2, [&](const Job& job) {
    TinyRank rank(job, run);
    const StepFeed first = rank.steps->next().value(), second = rank.steps->next().value();
    const MicroBatch own = first.own.front().view(), own_next = second.own.front().view();
    const std::optional<MicroBatch> told = foretell(own_next, job.rank);
    StepBatches next;
    if (told) next.own = {&*told, 1};
    const StepResult before =
        rank.replica.step({.own = {&own, 1}, .next = told ? &next : nullptr}, 1, 3e-3);
    const StepResult after = rank.replica.step({.own = {&own_next, 1}}, 2, 3e-3);
    if (job.rank == 0) losses = {before.loss, after.loss};
  });
  return losses;
}

TEST(Counts, CountsAreReportedWithThePreviousStepsLosses) {
  const auto nothing = [](const MicroBatch&, int) { return std::optional<MicroBatch>(); };
  const std::vector<double> asked = losses_of_two_steps(nothing);
  EXPECT_EQ(losses_of_two_steps([](const MicroBatch& batch, int) { return batch; }), asked);
  // Half of the targets were announced. They were not counted again later.
  const auto half = losses_of_two_steps([](MicroBatch batch, int) {
    batch.targets = batch.targets.first(batch.targets.size() / 2);
    return batch;
  });
  EXPECT_EQ(half[0], asked[0]);
  EXPECT_DOUBLE_EQ(half[1], 2 * asked[1]);
  // If one rank does not know its next batch in advance, all ranks count when they have the batch.
  const auto one = losses_of_two_steps([](const MicroBatch& batch, int rank) {
    return rank == 0 ? std::optional(batch) : std::nullopt;
  });
  EXPECT_EQ(one, asked);
}

}  // namespace
}  // namespace tutti::training
