// Tests which runs may be resumed, how a run stops, and what remains of a failed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "tests/training/support/saved_tensors.h"
#include "tests/training/support/tiny_run.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/step_directory.h"
#include "training/core/schema.h"
#include "training/models/gpt.h"
#include "training/models/registry.h"
#include "training/run/configuration.h"
#include "training/run/run_settings.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using testing::Deterministic;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tutti::testing::run_ranks_catching;

constexpr uint64_t kBatch = 4;

// The options and the model of a run.
struct Made {
  TrainOptions options;
  GptConfig model = testing::tiny_gpt();
  MeshShape mesh;
  int64_t window = testing::kTinyContext;
  std::string text;  // training text; empty: the default text
  int ranks = 2;
};

struct Outcome {
  std::vector<double> losses;
  TrainResult result;
};

class Resume : public FolderTest {
 protected:
  Made made(uint64_t steps, const std::string& directory) const {
    Made run;
    run.options.samples = steps * kBatch;
    run.options.batch = kBatch;
    run.options.micro_batch = 1;
    run.options.schedule = {.peak = 3e-3, .warmup_steps = 3};
    run.options.replica.storage.bucket_elements = 1 << 13;
    run.options.replica.clip = 1;
    run.options.validation_samples = 10;
    run.options.checkpoint = path(directory);
    return run;
  }
  static Made resumed(Made run) {
    run.options.resume = true;
    return run;
  }

  using OnStep = std::function<void(const StepReport&, const Job&)>;
  // Trains on all ranks. Returns each rank's error message. `outcome` receives the first rank's
  // outcome.
  static std::vector<std::string> train_catching(const Made& run, Outcome* outcome = nullptr,
                                                 const OnStep& on_step = {},
                                                 const std::function<int(int)>& stop = {}) {
    std::vector<std::string> said;
    for (const auto& error : run_ranks_catching(run.ranks, [&](const Job& job) {
           Gpt model(run.model);
           std::vector<uint8_t> bytes(run.text.begin(), run.text.end());
           const TokenWindows data(
               run.text.empty() ? testing::sample_tokens() : Tokens(split_text(std::move(bytes))),
               run.window, 1);
           TrainOptions options = run.options;
           if (stop) options.stop_requested = [&] { return stop(job.rank); };
           std::vector<double> losses;
           const TrainResult result = train(Mesh(Communicator::init(job), run.mesh), model, {&data},
                                            options, [&](const StepReport& report) {
                                              losses.push_back(report.result.loss);
                                              if (on_step) on_step(report, job);
                                            });
           if (outcome != nullptr && job.rank == 0) *outcome = {losses, result};
         })) {
      said.emplace_back(error ? error->what() : "");
    }
    return said;
  }
  static Outcome trained(const Made& run, const OnStep& on_step = {},
                         const std::function<int(int)>& stop = {}) {
    Outcome outcome;
    EXPECT_THAT(train_catching(run, &outcome, on_step, stop), Each(""));
    return outcome;
  }
  std::map<std::string, std::vector<float>> tensors(const std::string& directory) const {
    return testing::saved_tensors(Checkpoint::open(path(directory)));
  }

  const Deterministic deterministic_;
};

// --- resumable runs ---

TEST_F(Resume, RefusesOtherSettingsAndNamesThem) {
  trained(made(4, "run"));
  const auto refused = [&](const std::function<void(Made&)>& change,
                           const std::vector<std::string>& words) {
    Made run = resumed(made(8, "run"));
    change(run);
    for (const std::string& said : train_catching(run)) {
      for (const std::string& word : words) EXPECT_THAT(said, HasSubstr(word));
    }
  };
  const std::string another = "the options differ from those of the saved run";
  refused([](Made& run) { run.options.schedule.peak = 0.01; },
          {another, "lr: 0.003 in the checkpoint, 0.01 now", "--allow-changed lr"});
  refused([](Made& run) { run.model.dropout = 0.1; }, {"dropout: 0 in the checkpoint, 0.1 now"});
  refused([](Made& run) { run.options.micro_batch = 2; }, {"micro-batch: 1 in", "2 now"});
  refused(
      [](Made& run) {
        run.options.optimizer = {{"name", "sgd"}};
      },
      {"optimizer: adamw in the checkpoint, sgd now", "another directory"});
  refused([](Made& run) { run.options.optimizer["weight_decay"] = 0.5; },
          {"weight-decay: 0.01 in", "0.5 now"});
  refused([](Made& run) { run.options.optimizer["beta2"] = 0.9; }, {"beta2: 0.999 in"});
  refused([](Made& run) { run.options.replica.clip.reset(); },
          {"clip: 1 in the checkpoint, 0 now"});
  refused([](Made& run) { run.options.replica.storage.dtype = DType::bf16; },
          {"precision: f32 in the checkpoint, bf16 now"});
  refused([](Made& run) { run.options.replica.runner.gemm_format = GemmFormat::fp8; },
          {"gemm-format: none in the checkpoint, fp8 now"});
  refused([](Made& run) { run.options.schedule.warmup_steps = 4; }, {"warmup: 3 in"});
  refused([](Made& run) { run.options.seed = 9; }, {"seed: 1 in the checkpoint, 9 now"});
  refused([](Made& run) { run.options.batch = 8; }, {"batch: 4 in the checkpoint, 8 now"});
  refused([](Made& run) { run.options.compression = Compression::bf16; }, {"compression: none in"});
  refused([](Made& run) { run.model.layers = 3; }, {"model: gpt2 layers=2", "layers=3", "now"});
  refused([](Made& run) { run.text = std::string(3000, 'x') + std::string(2000, 'y'); },
          {"data: ", "examples with fingerprint", " in the checkpoint, ", " now"});
  refused([](Made& run) { run.window = 8; },
          {"data: ", "examples with fingerprint", "of the same data now"});
  refused(
      [](Made& run) {
        run.options.schedule.peak = 1;
        run.model.dropout = 0.5;
      },
      {"dropout: 0 in", "; lr: 0.003 in", "--allow-changed dropout,lr"});
  refused([](Made& run) { run.options.checkpoint += "-none"; }, {"there is no directory", "-none"});
  EXPECT_THAT(steps_in(path("run")), ElementsAre(4)) << "nothing has happened";
}

TEST_F(Resume, ReportsChangedSettingsThatMayChange) {
  trained(made(4, "run"));
  Made run = resumed(made(6, "run"));
  run.options.schedule.peak = 0.01;
  run.options.allow_changed = {"lr", "clip"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(trained(run).result.resumed_at, 4u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("changed settings: lr: 0.003 in the checkpoint, 0.01 now"),
                    HasSubstr("samples: 16 in the checkpoint, 24 now"), Not(HasSubstr("clip"))));
  // The changed settings are now those of the run.
  ::testing::internal::CaptureStderr();
  run.options.allow_changed = {};
  EXPECT_EQ(trained(run).result.resumed_at, 6u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());

  run.options.allow_changed = {"leraning"};
  EXPECT_THAT(train_catching(run),
              Each(AllOf(HasSubstr("unknown setting \"leraning\""), HasSubstr("lr"))));
  run.options.allow_changed = {"batch"};
  EXPECT_THAT(train_catching(run), Each(HasSubstr("the batch of a run cannot be changed")));
}

// Gradients that are rounded stochastically have the same bits after a resume.
TEST_F(Resume, NarrowProductsGiveTheSameBits) {
  const auto run_in = [&](uint64_t steps, const std::string& directory) {
    Made run = made(steps, directory);
    run.options.replica.runner.gemm_format = GemmFormat::nvfp4;
    return run;
  };
  const std::vector<double> whole = trained(run_in(6, "whole")).losses;
  trained(run_in(3, "parts"));
  const Outcome rest = trained(resumed(run_in(6, "parts")));
  EXPECT_EQ(rest.losses, std::vector<double>(whole.begin() + 3, whole.end()));
  EXPECT_EQ(tensors("parts"), tensors("whole"));
}

TEST_F(Resume, AnotherLayoutContinuesTheSameRun) {
  trained(made(4, "run"));
  Made run = resumed(made(4, "run"));
  run.options.samples += 2 * kBatch;
  run.options.schedule.decay = LearningRateSchedule::Decay::cosine;
  run.ranks = 4;
  run.mesh = {.data = 2, .pipeline = 2};
  run.options.replica.storage.stage = 1;
  run.options.replica.pipeline.schedule = "gpipe";
  run.options.replica.storage.bucket_elements = 1 << 10;
  run.options.checkpoint_every = 1;
  run.options.keep = 7;
  EXPECT_EQ(trained(run).result.resumed_at, 4u);
}

TEST_F(Resume, ANewRunInAUsedDirectoryIsRefusedByAllRanks) {
  const std::string run = trained(made(4, "run")).result.run;
  EXPECT_EQ(run.size(), 32u);
  const auto before = tensors("run");
  EXPECT_THAT(train_catching(made(2, "run")),
              Each(AllOf(HasSubstr(run), HasSubstr("the new run "), HasSubstr("--overwrite"))));
  EXPECT_TRUE(tensors("run") == before);
  Made step = resumed(made(8, "run"));
  step.options.checkpoint += "/step-00000004";
  EXPECT_THAT(train_catching(step), Each(HasSubstr("--resume 4")));
  EXPECT_THAT(train_catching(made(1, "run/step-00000004")),
              Each(HasSubstr("is the folder of one step")));

  Made over = made(2, "run");
  over.options.overwrite = true;
  EXPECT_NE(trained(over).result.run, run);
  EXPECT_THAT(steps_in(path("run")), ElementsAre(2));
}

// Runs that were saved by versions without --sync have the setting average_every instead.
TEST(RunSettings, ReadTheAveragingOfOldRuns) {
  const std::unique_ptr<DataSet> data = testing::tiny_data();
  const Gpt model(testing::tiny_gpt());
  Json whole = configuration_of(model, {data.get()}, TrainOptions()).whole;
  EXPECT_FALSE(whole["training"].contains("average_every"));
  erase_member(whole, "training.sync");
  EXPECT_EQ(settings_in(whole).at("sync"), "allreduce");
  set_member(whole, "training.average_every", 4);
  EXPECT_EQ(settings_in(whole).at("sync"), "local:4");
}

TEST_F(Resume, ResumesFromAnEarlierStep) {
  Made run = made(6, "run");
  run.options.checkpoint_every = 2;
  run.options.keep = 0;
  const Outcome whole = trained(run);
  Made back = resumed(run);
  back.options.resume_step = 2;
  const Outcome again = trained(back);
  EXPECT_EQ(again.result.resumed_at, 2u);
  EXPECT_EQ(again.result.run, whole.result.run);
  EXPECT_EQ(again.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  EXPECT_THAT(steps_in(path("run/set-aside-1")), ElementsAre(4, 6));
}

// --- stopping ---

TEST_F(Resume, AStoppedRunLosesNoStep) {
  for (const int stages : {1, 2}) {
    SCOPED_TRACE(stages);
    const auto run = [&](const std::string& name) {
      Made made_run = made(8, cat(name, stages));
      made_run.mesh.pipeline = stages;
      return made_run;
    };
    const Outcome whole = trained(run("whole"));
    std::atomic<bool> asked = false;
    const Outcome stopped = trained(
        run("cut"),
        [&](const StepReport& report, const Job& job) {
          // As if the request came during step 3.
          if (job.rank == 1 && report.step == 2) asked = true;
        },
        [&](int rank) { return rank == 1 && asked ? 15 : 0; });
    EXPECT_EQ(stopped.result.stopped_by, 15);
    EXPECT_EQ(stopped.result.step, 3u);
    EXPECT_THAT(steps_in(path(cat("cut", stages))), ElementsAre(3));
    const Outcome rest = trained(resumed(run("cut")));
    EXPECT_EQ(rest.result.resumed_at, 3u);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
    EXPECT_TRUE(tensors(cat("cut", stages)) == tensors(cat("whole", stages)));
  }
}

// --- remains of a failed run ---

TEST_F(Resume, ATraceOutlivesAFailure) {
  Made run = made(8, "run");
  run.options.trace = path("trace.json");
  EXPECT_THAT(train_catching(run, nullptr,
                             [](const StepReport& report, const Job& job) {
                               if (job.rank == 1 && report.step == 3) {
                                 throw Error(ErrorCode::system, "power cut");
                               }
                             }),
              Each(Not(IsEmpty())));
  for (const int rank : {0, 1}) {
    std::ifstream file(path(cat("trace.rank-", rank, ".json")));
    const Json trace = Json::parse(std::string(std::istreambuf_iterator(file), {}));
    EXPECT_GT(trace.at("traceEvents").size(), 10u);
  }
  EXPECT_FALSE(std::filesystem::exists(path("trace.json")));
}

}  // namespace
}  // namespace tutti::training
