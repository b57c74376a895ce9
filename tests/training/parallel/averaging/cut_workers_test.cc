// Tests methods in which each worker, with its own values, is a pipeline or several tensor ranks.
// The division of a worker must not change the results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/late_run.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training {
namespace {

using testing::Deterministic;
using ::testing::HasSubstr;
using testing::late_options;
using testing::late_refusal;
using testing::LateRun;
using testing::train_late_on;

constexpr int kWorkers = 2;
constexpr MeshShape kPipeline{.pipeline = 2};
constexpr MeshShape kTensor{.tensor = 2};
constexpr MeshShape kBoth{.tensor = 2, .pipeline = 2};

TrainOptions options_of(const std::string& way) {
  TrainOptions options = late_options(way);
  options.samples = 12 * options.batch;
  options.micro_batch = 1;
  options.flush_every = 4;
  options.replica.clip = 0.5;
  return options;
}

LateRun trained(const TrainOptions& options, const MeshShape& worker) {
  return train_late_on(kWorkers * worker.tensor * worker.pipeline, options, worker).front();
}

class CutWorkers : public FolderTest {};

TEST_F(CutWorkers, TrainAsWholeModelsDo) {
  const Deterministic deterministic;
  for (const std::string way :
       {"local:3", "post-local:2@4", "diloco:4", "diloco:4,1,2,0.5", "gossip:random", "gossip:ring",
        "sgp", "easgd:3", "fedavg:4", "fedprox:4,0.1"}) {
    SCOPED_TRACE(way);
    const LateRun whole = trained(options_of(way), {});
    EXPECT_LT(whole.losses.back(), 0.95 * whole.losses.front()) << "it learns";
    for (const MeshShape& worker : {kPipeline, kTensor, kBoth}) {
      SCOPED_TRACE(cat(worker.tensor, " tensor ranks, ", worker.pipeline, " stages"));
      const LateRun cut = trained(options_of(way), worker);
      EXPECT_LT(testing::relative_difference(cut.losses, whole.losses), 1e-5);
      EXPECT_NEAR(cut.result.validation.loss, whole.result.validation.loss,
                  1e-5 * whole.result.validation.loss);
    }
  }
}

TEST_F(CutWorkers, ResumeFromACheckpointBitForBit) {
  for (const std::string way :
       {"local:3", "diloco:4,1,1,0.5", "diloco:4,2,1,0.5", "sgp", "easgd:3", "fedadam:4"}) {
    SCOPED_TRACE(way);
    const bool in_columns = way == "easgd:3" || way == "diloco:4,2,1,0.5";
    const MeshShape worker = way == "sgp" ? kPipeline : in_columns ? kTensor : kBoth;
    TrainOptions options = options_of(way);
    if (way == "fedadam:4") options.replica.sync.outer_rate = 0.01;
    options.checkpoint = path("run-" + way);
    options.checkpoint_every = 6;
    options.keep = 0;
    const LateRun whole = trained(options, worker);
    options.resume = true;
    options.resume_step = 6;
    const LateRun rest = trained(options, worker);
    EXPECT_EQ(rest.result.validation.loss, whole.result.validation.loss);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 6, whole.losses.end()));
  }
}

// If a resumed run divides the workers differently, the saved states belong to other parts of the
// model and cannot be used.
TEST_F(CutWorkers, BeginWithTheMeanIfDividedDifferently) {
  for (const std::string way : {"local:3", "diloco:4,1,1,0.5", "sgp", "easgd:3", "fedavg:4"}) {
    TrainOptions options = options_of(way);
    options.checkpoint = path("run-" + way);
    options.checkpoint_every = 6;
    options.keep = 0;
    const LateRun whole = trained(options, kPipeline);
    options.resume = true;
    options.resume_step = 6;
    for (const MeshShape& worker : {MeshShape(), kTensor, kBoth}) {
      SCOPED_TRACE(
          cat(way, " then ", worker.tensor, " tensor ranks, ", worker.pipeline, " stages"));
      const LateRun rest = trained(options, worker);
      EXPECT_NEAR(rest.result.validation.loss, whole.result.validation.loss,
                  0.1 * whole.result.validation.loss);
    }
  }
}

TEST_F(CutWorkers, RefuseIncompatibleOptions) {
  const auto refusal = [](const TrainOptions& options) {
    return late_refusal(2 * kWorkers, options, kPipeline);
  };
  EXPECT_THAT(refusal(options_of("adpsgd")), HasSubstr("does not support a model that is sharded"));
  EXPECT_THAT(refusal(options_of("ps")), HasSubstr("a model that is sharded over ranks"));
  TrainOptions both = options_of("local:3");
  both.replica.pipeline.schedule = "chimera";
  EXPECT_THAT(refusal(both), HasSubstr("the ranks of one worker"));
  TrainOptions late = options_of("local:3");
  late.replica.pipeline.schedule = "pipedream-2bw";
  EXPECT_THAT(refusal(late), HasSubstr("does not support"));
  TrainOptions narrow = options_of("diloco:4");
  narrow.replica.sync.wire = WireFormat::mx8;
  EXPECT_THAT(refusal(narrow), HasSubstr("tied embeddings on two stages"));
  EXPECT_THAT(refusal(options_of("diloco:4,2,1,0.5")),
              HasSubstr("tied embeddings are on two stages"));
}

}  // namespace
}  // namespace tutti::training
