// Ranks with values of their own where each worker is a pipeline, or several tensor ranks: what is
// cut is not seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using ::testing::HasSubstr;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

constexpr int kWorkers = 2;
constexpr uint64_t kSteps = 12;

TrainOptions options_of(const std::string& way) {
  TrainOptions options;
  options.samples = kSteps * 8;
  options.batch = 8;
  options.micro_batch = 1;
  options.schedule = {.peak = 3e-3};
  options.flush_every = 4;
  options.validation_samples = 10;
  options.replica.clip = 0.5;
  set_way(options.replica.sync, way);
  return options;
}

struct Ended {
  std::vector<double> losses;
  double validation = 0;
  bool operator==(const Ended&) const = default;
};

Ended train_as_rank(const Job& job, const TrainOptions& options, const MeshShape& worker) {
  const Mesh mesh(Communicator::init(job), worker);
  Gpt model(testing::tiny_gpt(), mesh.place());
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  Ended ended;
  const TrainResult result =
      train(mesh, model, {data.get()}, options,
            [&](const StepReport& report) { ended.losses.push_back(report.result.loss); });
  ended.validation = result.validation.loss;
  return ended;
}

constexpr MeshShape kPipeline{.pipeline = 2};
constexpr MeshShape kTensor{.tensor = 2};
constexpr MeshShape kBoth{.tensor = 2, .pipeline = 2};

Ended trained(const TrainOptions& options, const MeshShape& worker) {
  const int ranks = kWorkers * worker.tensor * worker.pipeline;
  std::vector<Ended> ended(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](const Job& job) {
    ended[static_cast<size_t>(job.rank)] = train_as_rank(job, options, worker);
  });
  for (const Ended& rank : ended) EXPECT_EQ(rank, ended.front());
  return ended.front();
}

class CutWorkers : public FolderTest {};

TEST_F(CutWorkers, TrainAsWholeModelsDo) {
  const Deterministic deterministic;
  for (const std::string way :
       {"local:3", "post-local:2@4", "diloco:4", "diloco:4,1,2,0.5", "gossip:random", "gossip:ring",
        "sgp", "easgd:3", "fedavg:4", "fedprox:4,0.1"}) {
    SCOPED_TRACE(way);
    const Ended whole = trained(options_of(way), {});
    EXPECT_LT(whole.losses.back(), 0.95 * whole.losses.front()) << "it learns";
    for (const MeshShape& worker : {kPipeline, kTensor, kBoth}) {
      SCOPED_TRACE(cat(worker.tensor, " tensor ranks, ", worker.pipeline, " stages"));
      const Ended cut = trained(options_of(way), worker);
      EXPECT_LT(testing::relative_difference(cut.losses, whole.losses), 1e-5);
      EXPECT_NEAR(cut.validation, whole.validation, 1e-5 * whole.validation);
    }
  }
}

TEST_F(CutWorkers, GoOnFromACheckpointBitForBit) {
  for (const std::string way : {"local:3", "diloco:4,2,1,0.5", "sgp", "easgd:3", "fedadam:4"}) {
    SCOPED_TRACE(way);
    const MeshShape worker = way == "sgp" ? kPipeline : way == "easgd:3" ? kTensor : kBoth;
    TrainOptions options = options_of(way);
    if (way == "fedadam:4") options.replica.sync.outer_rate = 0.01;
    options.checkpoint = path("run-" + way);
    options.checkpoint_every = 6;
    options.keep = 0;
    const Ended whole = trained(options, worker);
    options.resume = true;
    options.resume_step = 6;
    const Ended rest = trained(options, worker);
    EXPECT_EQ(rest.validation, whole.validation);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
  }
}

// What is of parts of the model is of no use to workers that are cut otherwise.
TEST_F(CutWorkers, BeginWithTheMeanWhereTheyAreCutOtherwise) {
  for (const std::string way : {"local:3", "diloco:4,2,1,0.5", "sgp", "easgd:3", "fedavg:4"}) {
    TrainOptions options = options_of(way);
    options.checkpoint = path("run-" + way);
    options.checkpoint_every = 6;
    options.keep = 0;
    const Ended whole = trained(options, kPipeline);
    options.resume = true;
    options.resume_step = 6;
    for (const MeshShape& worker : {MeshShape(), kTensor, kBoth}) {
      SCOPED_TRACE(
          cat(way, " then ", worker.tensor, " tensor ranks, ", worker.pipeline, " stages"));
      const Ended rest = trained(options, worker);
      EXPECT_NEAR(rest.validation, whole.validation, 0.1 * whole.validation);
    }
  }
}

TEST_F(CutWorkers, RefuseWhatDoesNotGoTogether) {
  const auto refusal = [](const TrainOptions& options) {
    const auto errors =
        run_ranks_catching(4, [&](const Job& job) { train_as_rank(job, options, kPipeline); });
    return errors.front() ? std::string(errors.front()->what()) : "";
  };
  EXPECT_THAT(refusal(options_of("adpsgd")), HasSubstr("does not go with a model that is cut"));
  EXPECT_THAT(refusal(options_of("ps")), HasSubstr("a model that is cut over ranks"));
  TrainOptions both = options_of("local:3");
  both.replica.pipeline.schedule = "chimera";
  EXPECT_THAT(refusal(both), HasSubstr("gradients that the ranks of one worker sum"));
  TrainOptions late = options_of("local:3");
  late.replica.pipeline.schedule = "pipedream-2bw";
  EXPECT_THAT(refusal(late), HasSubstr("does not go with"));
}

}  // namespace
}  // namespace tutti::training
