// Tests training through parameter servers: results that must equal those of all-reduce, replay of
// recorded runs, and bounds on staleness.
#include "training/parallel/servers/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/late_run.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::kLateFlush;
using testing::kLateSteps;
using testing::late_options;
using testing::late_refusal;
using testing::LateRun;
using ::testing::Le;
using ::testing::SizeIs;
using testing::TinyRun;
using testing::train_late;
using testing::train_late_on;
using tutti::testing::run_ranks_catching;

// --- modes with the same bits as sums over all ranks ---

// Returns a run with untied embeddings. With tied embeddings, deterministic mode would sum the
// gradients of both uses over ranks separately.
TinyRun run_of(const std::string& way, const std::string& optimizer, DType dtype = DType::f32) {
  TinyRun run;
  run.model.tied = false;
  set_way(run.replica.sync, way);
  run.optimizer = {{"name", optimizer}};
  if (optimizer == "sgd") run.optimizer["momentum"] = 0.9;
  run.replica.storage.dtype = dtype;
  run.replica.storage.bucket_elements = 1 << 12;
  run.replica.clip = 0.5;
  run.steps = 5;
  run.batch = 12;
  run.last_batch = 7;
  run.validation_samples = 8;
  return run;
}

TEST(ParameterServer, EqualsSumsOfGradientsBitForBit) {
  const Deterministic deterministic;
  for (const std::string optimizer : {"adamw", "sgd", "lamb"}) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      const testing::Outcome summed = train(ranks, run_of("allreduce", optimizer));
      for (const std::string way : {"ps", "ssp:0"}) {
        SCOPED_TRACE(cat(way, " ", optimizer, " on ", ranks));
        EXPECT_EQ(difference(train(ranks, run_of(way, optimizer)), summed), "");
      }
    }
  }
}

TEST(ParameterServer, ServersThatDoNotComputeChangeNoBit) {
  const Deterministic deterministic;
  for (const int workers : {1, 2, 4}) {
    const testing::Outcome summed = train(workers, run_of("allreduce", "adamw"));
    for (const int servers : {1, 2, 3}) {
      const std::string way = cat("ps:", servers);
      SCOPED_TRACE(cat(way, " with ", workers, " workers"));
      EXPECT_EQ(difference(train(workers + servers, run_of(way, "adamw")), summed), "");
    }
  }
}

TEST(ParameterServer, UpdatesMastersOfValuesIn16Bits) {
  const Deterministic deterministic;
  const testing::Outcome summed = train(3, run_of("allreduce", "adamw", DType::bf16));
  for (const std::string way : {"ps", "ssp:0"}) {
    EXPECT_EQ(difference(train(3, run_of(way, "adamw", DType::bf16)), summed), "") << way;
  }
}

TEST(ParameterServer, OneWorkerEqualsTrainingAlone) {
  const Deterministic deterministic;
  for (const std::string optimizer : {"adamw", "sgd"}) {
    const testing::Outcome alone = train(1, run_of("allreduce", optimizer));
    for (const std::string way : {"async", "ssp:3"}) {
      EXPECT_EQ(difference(train(1, run_of(way, optimizer)), alone), "") << way;
      EXPECT_EQ(difference(train(3, run_of(way + ":2", optimizer)), alone), "") << way << ":2";
    }
  }
}

// --- modes in which workers wait only for servers ---

LateRun trained(int ranks, const TrainOptions& options) {
  return train_late_on(ranks, options).front();
}

class Served : public FolderTest {
 protected:
  // Returns a line of the record, according to which two servers apply the parts of two workers'
  // steps one after another.
  static std::string line_of_empty_parts(int first) {
    std::string pushes;
    for (int step = 0; step < static_cast<int>(kLateFlush); ++step) {
      pushes += cat(step == 0 ? "" : ",", "[0,", 2 * step, "],[1,", 2 * step + 1, "]");
    }
    return cat(R"({"way":"async:2","first":)", first, R"(,"last":)", first + kLateFlush - 1,
               R"(,"workers":2,"servers":[[)", pushes, "],[", pushes, "]]}\n");
  }
  TrainOptions recorded(const std::string& way) const {
    TrainOptions options = late_options(way);
    options.replica.sync.record = path("order");
    return options;
  }
  static TrainOptions replayed(TrainOptions options, const std::string& file) {
    options.replica.sync.record.clear();
    options.replica.sync.replay = file;
    return options;
  }
  std::vector<Json> stretches() const {
    std::vector<Json> stretches;
    std::ifstream file(path("order"));
    for (std::string line; std::getline(file, line);) stretches.push_back(Json::parse(line));
    return stretches;
  }
};

TEST_F(Served, ReplaysARecordedRunBitForBit) {
  for (const std::string way : {"async", "async:1", "async:2", "ssp:2", "ssp:1:1", "ps"}) {
    SCOPED_TRACE(way);
    TrainOptions options = recorded(way);
    options.schedule.peak = 5e-4;  // low, because values may be many updates old
    if (way == "async:2") options.replica.sync.pull_every = 3;
    if (way == "async:1") options.replica.sync.damping = true;
    if (way == "async") options.replica.clip = 0.1;
    const LateRun first = trained(4, options);
    EXPECT_THAT(first.losses, SizeIs(kLateSteps));
    EXPECT_LT(first.losses.back(), first.losses.front()) << "it learns";
    for (int time = 0; time < 2; ++time) {
      const LateRun again = trained(4, replayed(options, path("order")));
      EXPECT_EQ(again.losses, first.losses);
      EXPECT_EQ(again.result.digest, first.result.digest);
      EXPECT_EQ(again.result.validation.loss, first.result.validation.loss);
    }
  }
}

TEST_F(Served, TakesEachPartOfAsyncStepsOnce) {
  trained(4, recorded("async:1"));
  const std::vector<Json> found = stretches();
  ASSERT_THAT(found, SizeIs(kLateSteps / kLateFlush));
  for (const Json& stretch : found) {
    std::set<int64_t> parts;
    for (const Json& push : stretch.at("servers").at(0)) parts.insert(push.at(1).get<int64_t>());
    EXPECT_THAT(parts, SizeIs(3 * kLateFlush)) << "of 3 workers";
    EXPECT_EQ(*parts.begin(), 0);
    EXPECT_EQ(*parts.rbegin(), static_cast<int64_t>(3 * kLateFlush) - 1);
  }
}

// A part without samples must not count as an update, because Adam would move values by its
// moments.
TEST_F(Served, EmptyPartsAreNoUpdates) {
  TrainOptions options = late_options("async:2");
  options.micro_batch = options.batch;
  TrainOptions plain = options;
  set_way(plain.replica.sync, "allreduce");
  const LateRun alone = trained(1, plain);
  // Each step has one part with a sample and one without.
  options.replica.sync.replay =
      write("order", cat(line_of_empty_parts(1), line_of_empty_parts(9), line_of_empty_parts(17)));
  const LateRun found = trained(4, options);
  EXPECT_EQ(found.losses, alone.losses);
}

TEST_F(Served, KeepsItsShardsInFiles) {
  TrainOptions options = late_options("ps:1");
  const LateRun in_memory = trained(3, options);
  options.replica.storage.offload = {.kinds = {"optimizer"}, .directory = path("")};
  EXPECT_EQ(trained(3, options).result.digest, in_memory.result.digest);
  options.replica.storage.offload.directory = path("nowhere");
  const auto errors = run_ranks_catching(3, [&](const Job& job) { train_late(job, options); });
  ASSERT_TRUE(errors.back());
  EXPECT_THAT(errors.back()->what(), HasSubstr("cannot create"));
}

TEST_F(Served, KeepsStalenessWithinItsBound) {
  for (const int64_t bound : {0, 1, 3}) {
    TrainOptions options = late_options(cat("ssp:", bound));
    options.straggler = "2:x3";
    for (const RankReport& rank : trained(3, options).result.ranks) {
      ASSERT_TRUE(rank.staleness);
      EXPECT_THAT(rank.staleness->largest, Le(bound));
      EXPECT_EQ(rank.clock, kLateSteps);
    }
  }
}

// Rank 0 has no samples, so that all gradients are those of rank 1. In the replayed order, rank 1
// is two clocks ahead of the state of the servers, and continues with its own writes.
class Ahead : public Served {
 protected:
  TrainOptions options(const std::string& optimizer, const std::string& way) {
    TrainOptions options = late_options(way);
    options.samples = 6 * 2;
    options.batch = options.micro_batch = 2;
    options.optimizer = {{"name", optimizer}};
    if (optimizer == "sgd") options.optimizer["momentum"] = 0;
    options.schedule.peak = optimizer == "sgd" ? 0.3 : 3e-3;
    if (way == "allreduce") return options;
    const std::string pushes =
        "[[1,0],[1,1],[0,0],[1,2],[0,1],[1,3],[0,2],[1,4],[0,3],[1,5],[0,4],[0,5]]";
    options.replica.sync.replay =
        write("order", cat(R"({"way":"ssp:2","first":1,"last":6,"workers":2,"servers":[)", pushes,
                           ",", pushes, "]}\n"));
    return options;
  }
};

TEST_F(Ahead, SeesItsOwnWritesAtOnce) {
  const LateRun alone = trained(2, options("sgd", "allreduce"));
  const LateRun ahead = trained(2, options("sgd", "ssp:2"));
  EXPECT_EQ(ahead.result.ranks[1].staleness->largest, 2);
  EXPECT_EQ(ahead.result.ranks[0].staleness->largest, 0);
  EXPECT_LT(testing::relative_difference(ahead.losses, alone.losses), 1e-6);
  EXPECT_LT(alone.losses.back(), 0.99 * alone.losses.front());
}

// Workers cannot predict an update of Adam from their gradients, because only servers have its
// moments.
TEST_F(Ahead, OtherOptimizersReadTheServersParameters) {
  const LateRun alone = trained(2, options("adamw", "allreduce"));
  const LateRun ahead = trained(2, options("adamw", "ssp:2"));
  EXPECT_EQ(ahead.losses[0], alone.losses[0]);
  EXPECT_GT(testing::relative_difference(ahead.losses, alone.losses), 1e-3);
}

TEST_F(Served, ResumesFromACheckpointByItsRecord) {
  for (const std::string way : {"ps", "async:1", "ssp:2"}) {
    SCOPED_TRACE(way);
    TrainOptions options = recorded(way);
    const LateRun whole = trained(3, options);
    TrainOptions half = replayed(options, path("order"));
    half.checkpoint = path("run-" + way);
    half.checkpoint_every = kLateFlush;
    half.keep = 0;
    EXPECT_EQ(trained(3, half).result.digest, whole.result.digest);
    half.resume = true;
    half.resume_step = kLateFlush;
    const LateRun rest = trained(3, half);
    EXPECT_EQ(rest.result.resumed_at, kLateFlush);
    EXPECT_EQ(rest.result.digest, whole.result.digest);
    EXPECT_EQ(rest.result.validation.loss, whole.result.validation.loss);
  }
}

// --- Refused options ---

TEST_F(Served, RefusesAnotherRunsRecord) {
  trained(2, recorded("async"));
  EXPECT_THAT(late_refusal(2, replayed(late_options("ssp:2"), path("order"))),
              HasSubstr("it was recorded with --sync async"));
  EXPECT_THAT(late_refusal(3, replayed(late_options("async"), path("order"))),
              HasSubstr("the record has 2 workers and 2 servers"));
  TrainOptions longer = replayed(late_options("async"), path("order"));
  longer.flush_every = 12;
  EXPECT_THAT(late_refusal(2, longer), HasSubstr("its segment ends at step 8"));
  TrainOptions other = replayed(late_options("async"), path("order"));
  other.seed = 2;
  EXPECT_THAT(late_refusal(2, other), HasSubstr("it belongs to a run with other settings"));
  EXPECT_THAT(late_refusal(2, replayed(late_options("async"), path("nothing"))),
              HasSubstr("cannot read"));
  EXPECT_THAT(late_refusal(2, replayed(late_options("async"), write("text", "{}\n"))),
              HasSubstr("is not a record of updates"));
}

TEST_F(Served, RefusesAnImpossibleOrder) {
  TrainOptions options = late_options("ssp:1");
  options.samples = 3 * 8;
  const std::string pushes = "[[0,0],[0,1],[0,2],[1,0],[1,1],[1,2]]";
  const std::string line = cat(R"({"way":"ssp:1","first":1,"last":3,"workers":2,"servers":[)",
                               pushes, ",", pushes, "]}\n");
  EXPECT_THAT(late_refusal(2, replayed(options, write("bad", line))),
              HasSubstr("worker 0 does not reach its next clock, 2"));
}

TEST_F(Served, RefusesIncompatibleOptions) {
  const auto with = [](const std::string& way, const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = late_options(way);
    change(options);
    return late_refusal(2, options);
  };
  const auto nothing = [](TrainOptions&) {};
  EXPECT_THAT(with("ps:2", nothing), HasSubstr("dedicated servers"));
  EXPECT_THAT(with("async",
                   [](TrainOptions& o) {
                     o.optimizer = {{"name", "lamb"}};
                   }),
              HasSubstr("norms of whole parameters"));
  for (const char* optimizer : {"soap", "adafactor", "muon"}) {
    EXPECT_THAT(with("ps:1",
                     [&](TrainOptions& o) {
                       o.optimizer = {{"name", optimizer}};
                     }),
                HasSubstr("dedicated servers"));
  }
  EXPECT_THAT(with("ps", [](TrainOptions& o) { o.replica.storage.stage = 1; }),
              HasSubstr("ZeRO stage 1"));
  EXPECT_THAT(with("ps", [](TrainOptions& o) { o.compression = Compression::bf16; }),
              HasSubstr("--compression"));
}

TEST_F(Served, EndsOnAllRanksIfOneDiverges) {
  for (const std::string way : {"ps", "ps:1", "ssp:2", "async", "async:1"}) {
    TrainOptions options = late_options(way);
    options.optimizer = {{"name", "sgd"}};
    options.schedule.peak = 1e30;
    EXPECT_THAT(late_refusal(3, options), HasSubstr("is not finite")) << way;
  }
}

}  // namespace
}  // namespace tutti::training
