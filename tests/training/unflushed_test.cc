// Tests that PipeDream and PipeDream-2BW equal, bit for bit, a reference on a single thread, which
// uses stale weights according to the formulas of the papers (support/late_weights.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/support/late_weights.h"
#include "tests/training/support/tiny_run.h"
#include "training/engine/replica.h"
#include "training/pipeline/check.h"
#include "training/pipeline/schedules.h"
#include "training/run/feed.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using testing::LateBatches;
using testing::Lateness;
using testing::LateTraining;
using testing::Whole;
using tutti::testing::run_ranks;

constexpr uint64_t kSteps = 7;

// Conditions that must not change the result, or that change it in the same way for both.
struct Conditions {
  std::string_view optimizer;
  DType dtype;
  int rows;                // data-parallel ranks
  int stage = 0;           // ZeRO stage
  bool small_end = false;  // the last step has one sample less
  bool recompute = false;
  double dropout = 0;
  bool tiny_buckets = false;
};

constexpr const char* kAdamW = "adamw";
constexpr const char* kSgd = "sgd";
constexpr const char* kLamb = "lamb";

constexpr std::array kConditions = {
    Conditions{kAdamW, DType::f32, 1},
    Conditions{kLamb, DType::bf16, 2, 1},
    Conditions{kSgd, DType::f32, 2, 2, true, false, 0, true},
    Conditions{kAdamW, DType::bf16, 1, 0, true, true, 0.1},
    Conditions{kLamb, DType::f32, 2, 0, true, false, 0.1},
    Conditions{kAdamW, DType::f32, 2, 1, false, true, 0, true},
    Conditions{kSgd, DType::bf16, 1, 0, false, false, 0, true},
    Conditions{kAdamW, DType::bf16, 2, 2, true, true},
    Conditions{kLamb, DType::f32, 1, 0, true, true},
    Conditions{kSgd, DType::bf16, 2, 0, false, true, 0.1},
    Conditions{kLamb, DType::f32, 2, 2, false, false, 0, true},
};

struct Pipeline {
  std::string schedule;
  int stages = 1;
  int accumulated = 1;  // micro-batches per update in each row
};

std::string name_of(const Pipeline& pipeline) {
  return cat(pipeline.schedule == "pipedream" ? "PipeDream" : "TwoBuffers", pipeline.stages,
             "Stages", pipeline.accumulated, "AnUpdate");
}

void PrintTo(const Pipeline& pipeline, std::ostream* out) { *out << name_of(pipeline); }

struct Case {
  Pipeline pipeline;
  Conditions conditions;
  uint64_t flush_every = kSteps;

  uint64_t batch() const { return static_cast<uint64_t>(pipeline.accumulated * conditions.rows); }
  uint64_t samples() const {
    return kSteps * batch() - (conditions.small_end && batch() > 1 ? 1 : 0);
  }
};

std::string describe(const Case& c) {
  const Conditions& conditions = c.conditions;
  return cat(c.pipeline.schedule, " on ", c.pipeline.stages, " stages x ", conditions.rows,
             " rows, ", c.pipeline.accumulated, " an update, flushed every ", c.flush_every, ": ",
             conditions.optimizer, " ", name(conditions.dtype), " ZeRO-", conditions.stage,
             conditions.small_end ? ", small end" : "", conditions.recompute ? ", recompute" : "",
             conditions.dropout > 0 ? ", dropout" : "");
}

// Returns a cut of the four units of the model, which are the embedding, two blocks and the output.
std::vector<int> cut_of(int stages) {
  const std::array<std::vector<int>, 4> cuts = {{{0}, {0, 2}, {0, 1, 3}, {0, 1, 2, 3}}};
  return cuts[static_cast<size_t>(stages) - 1];
}

GptConfig model_of(const Case& c) {
  GptConfig config = testing::tiny_gpt();
  config.width = 16;
  config.tied = false;
  config.dropout = c.conditions.dropout;
  return config;
}

std::unique_ptr<Optimizer> optimizer_of(const Case& c) {
  return make_optimizer({{"name", c.conditions.optimizer}});
}

// Returns a learning rate that differs between all steps.
double rate_of(const Case& c, uint64_t step) {
  const double peak = c.conditions.optimizer == kAdamW ? 3e-3
                      : c.conditions.optimizer == kSgd ? 0.1
                                                       : 0.03;
  return peak * (1 - 0.1 * static_cast<double>(step));
}

ReplicaOptions replica_of(const Case& c) {
  ReplicaOptions options;
  options.pipeline = {.schedule = c.pipeline.schedule, .cut = cut_of(c.pipeline.stages)};
  options.storage.stage = c.conditions.stage;
  options.storage.dtype = c.conditions.dtype;
  if (c.conditions.tiny_buckets) {
    options.storage.bucket_elements = options.storage.first_bucket_elements = 1;
  }
  options.runner.checkpoint_units = c.conditions.recompute;
  options.runner.seed = 5;
  return options;
}

// All batches of one data-parallel row.
struct Batches {
  Batches(const Case& c, int row) : data(testing::tiny_data()) {
    const Feed feed({data.get()}, {.batch = c.batch(),
                                   .micro_batch = 1,
                                   .samples = c.samples(),
                                   .rank = row,
                                   .ranks = c.conditions.rows,
                                   .workers = 0});
    const auto steps = feed.steps_from(0);
    while (auto step = steps->next()) {
      feeds.push_back(std::move(*step));
      own.emplace_back();
      for (const Batch& batch : feeds.back().own) own.back().push_back(batch.view());
    }
  }
  int64_t targets(size_t step) const {
    return static_cast<int64_t>(feeds[step].samples) * testing::kTinyContext;
  }

  std::unique_ptr<DataSet> data;
  std::vector<StepFeed> feeds;
  std::vector<std::vector<MicroBatch>> own;  // by step
};

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  Whole parameters;
  std::vector<Whole> states;
};

// --- the reference ---

Trained train_late(const Case& c, Lateness lateness) {
  Gpt model(model_of(c));
  LateTraining training(model, {.lateness = lateness,
                                .cut = cut_of(c.pipeline.stages),
                                .dtype = c.conditions.dtype,
                                .make_optimizer = [&] { return optimizer_of(c); },
                                .dropout_seed = 5});
  std::vector<Batches> rows;
  for (int row = 0; row < c.conditions.rows; ++row) rows.emplace_back(c, row);
  Trained trained;
  for (uint64_t first = 0; first < kSteps; first += c.flush_every) {
    std::vector<LateBatches> updates;
    for (uint64_t step = first; step < std::min(kSteps, first + c.flush_every); ++step) {
      LateBatches& update = updates.emplace_back();
      for (const Batches& row : rows) update.rows.push_back(row.own[step]);
      update.targets = rows.front().targets(step);
      update.learning_rate = rate_of(c, step);
    }
    for (const auto& result :
         training.run(updates, c.pipeline.accumulated, static_cast<int64_t>(first) + 1)) {
      trained.losses.push_back(result.loss);
      trained.norms.push_back(result.gradient_norm);
    }
  }
  trained.parameters = training.parameters();
  trained.states = training.states();
  return trained;
}

// --- the pipeline ---

void copy(const Replica& replica, size_t kind, Whole& to) {
  for (const OwnedPiece& piece : replica.owned()) {
    std::ranges::copy(replica.values_of(piece, kind).values<float>(),
                      to[static_cast<size_t>(piece.piece.parameter)].begin() + piece.piece.first);
  }
}

struct Pipelined {
  Trained trained;            // the results of rank 0, and the parameters of all ranks
  std::vector<int> versions;  // by stage: the largest number of versions at one time
};

Pipelined train_pipelined(const Case& c) {
  const int ranks = c.pipeline.stages * c.conditions.rows;
  Pipelined result;
  Trained& trained = result.trained;
  Gpt any_model(model_of(c));
  for (const ParameterSpec& spec : any_model.parameters().specs()) {
    trained.parameters.emplace_back(static_cast<size_t>(spec.count()));
  }
  trained.states.assign(optimizer_of(c)->state_names().size(), trained.parameters);
  result.versions.resize(static_cast<size_t>(c.pipeline.stages));
  run_ranks(ranks, [&](const Job& job) {
    const Mesh mesh(Communicator::init(job), {.pipeline = c.pipeline.stages});
    Gpt model(model_of(c));
    Replica replica(mesh, model, optimizer_of(c), replica_of(c));
    const Batches batches(c, mesh.place(Axis::data));
    for (uint64_t first = 0; first < kSteps; first += c.flush_every) {
      std::vector<StepBatches> steps;
      std::vector<double> rates;
      for (uint64_t step = first; step < std::min(kSteps, first + c.flush_every); ++step) {
        steps.push_back({.own = batches.own[step],
                         .passes = static_cast<int64_t>(batches.feeds[step].passes),
                         .targets = batches.targets(step)});
        rates.push_back(rate_of(c, step));
      }
      for (const auto& step : replica.run(steps, static_cast<int64_t>(first) + 1, rates)) {
        if (job.rank != 0) continue;
        trained.losses.push_back(step.loss);
        trained.norms.push_back(step.gradient_norm);
      }
    }
    if (!replica.saves()) return;  // a rank of another row has the same values
    copy(replica, 0, trained.parameters);
    for (size_t kind = 1; kind < replica.kinds().size(); ++kind) {
      copy(replica, kind, trained.states[kind - 1]);
    }
    if (mesh.place(Axis::data) == 0) {
      result.versions[static_cast<size_t>(mesh.place(Axis::pipeline))] =
          replica.weight_versions().most_versions();
    }
  });
  return result;
}

// --- equality ---

void expect_same(const Trained& found, const Trained& expected, const std::string& where) {
  EXPECT_EQ(found.losses, expected.losses) << where;
  EXPECT_EQ(found.norms, expected.norms) << where;
  EXPECT_TRUE(found.parameters == expected.parameters) << where;
  EXPECT_TRUE(found.states == expected.states) << where;
}

class Unflushed : public ::testing::TestWithParam<Pipeline> {
 protected:
  Lateness lateness() const {
    return GetParam().schedule == "pipedream" ? testing::pipedream_lateness
                                              : testing::double_buffered_lateness;
  }
  const Deterministic deterministic_;
};

TEST_P(Unflushed, TrainsTheBitsOfItsDefinition) {
  for (size_t i = 0; i < kConditions.size(); ++i) {
    // The number of steps between flushes is kSteps, 3, 1 or 2. The last interval may be shorter.
    constexpr std::array kFlushes = {kSteps, uint64_t{3}, uint64_t{1}, uint64_t{2}};
    const Case c{GetParam(), kConditions[i], kFlushes[i % kFlushes.size()]};
    const Trained expected = train_late(c, lateness());
    expect_same(train_pipelined(c).trained, expected, describe(c));
    ASSERT_EQ(expected.losses.size(), kSteps);
  }
}

// The largest number of versions at one time must not exceed the bound of the checker.
TEST_P(Unflushed, KeepsNoMoreVersionsThanProved) {
  const Case c{GetParam(), kConditions.front(), kSteps};
  const int p = c.pipeline.stages;
  const auto bounds = check(
      make_plan(make_schedule(pipeline::schedule_named(c.pipeline.schedule),
                              {.ranks = p,
                               .micro_batches = static_cast<int>(kSteps) * c.pipeline.accumulated,
                               .accumulated = c.pipeline.accumulated})));
  const std::vector<int> versions = train_pipelined(c).versions;
  for (int stage = 0; stage < p; ++stage) {
    const auto at = static_cast<size_t>(stage);
    EXPECT_EQ(versions[at], bounds.ranks[at].versions) << "stage " << stage;
    if (c.pipeline.schedule == "pipedream-2bw") {
      EXPECT_EQ(versions[at], 2);
    } else if (c.pipeline.accumulated == 1) {
      EXPECT_EQ(versions[at], p - stage);
    }
  }
}

std::vector<Pipeline> all_pipelines() {
  std::vector<Pipeline> all;
  for (const int stages : {1, 2, 3, 4}) {
    for (const int accumulated : {1, 2, 4}) {
      all.push_back({"pipedream", stages, accumulated});
      // Each update of PipeDream-2BW needs at least stages - 1 micro-batches; pipedream_2bw.cc
      // explains why.
      if (accumulated >= stages - 1) all.push_back({"pipedream-2bw", stages, accumulated});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Pipelines, Unflushed, ::testing::ValuesIn(all_pipelines()),
                         [](const auto& info) { return name_of(info.param); });

// --- the difference is observable ---

TEST(LateWeights, ChangeTheResultsIfTheyAreLate) {
  const Deterministic deterministic;
  const auto never = [](int64_t i, int64_t, int64_t, int64_t a) { return i / a; };
  const Case late{{"pipedream", 3, 2}, kConditions.front()};
  const Trained prompt = train_late(late, never);
  const Trained pipedream = train_late(late, testing::pipedream_lateness);
  const Trained buffered = train_late(late, testing::double_buffered_lateness);
  EXPECT_EQ(pipedream.losses[0], prompt.losses[0]) << "at first there is nothing to be late";
  EXPECT_NE(pipedream.losses[1], prompt.losses[1]);
  EXPECT_NE(buffered.losses[1], prompt.losses[1]);
  EXPECT_NE(buffered.losses[1], pipedream.losses[1]);

  // Weights are not stale in PipeDream with a single stage, or if each step ends with a flush.
  const Case alone{{"pipedream", 1, 2}, kConditions.front()};
  expect_same(train_late(alone, testing::pipedream_lateness), train_late(alone, never), "alone");
  Case flushed{{"1f1b", 3, 2}, kConditions.front(), 1};
  const Trained synchronous = train_pipelined(flushed).trained;
  expect_same(train_late(flushed, testing::pipedream_lateness), synchronous, "flushed");
  expect_same(train_late(flushed, testing::double_buffered_lateness), synchronous, "flushed");
}

}  // namespace
}  // namespace tutti::training
