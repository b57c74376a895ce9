// Tests `tutti train --model gpt2`: its reports, its layouts, and recovery after kill -9.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Process::Environment kDeterministic = {{"TUTTI_DETERMINISTIC", "1"}};

class TrainGpt : public Cli {
 protected:
  // Returns a training of about 35 000 parameters on 2 ranks; `more` overrides these options.
  Words command(const Words& more) const {
    const std::vector<Words> defaults = {
        {"--model", "gpt2"}, {"--layers", "2"},       {"--heads", "2"}, {"--width", "32"},
        {"--context", "16"}, {"--micro-batch", "1"},  {"--ranks", "2"}, {"--data", text_},
        {"--batch", "2"},    {"--json", path("json")}};
    Words words = {"train"};
    for (const Words& option : defaults) {
      if (std::ranges::find(more, option[0]) == more.end()) words = words + option;
    }
    return words + more;
  }
  std::vector<Json> lines() const {
    std::vector<Json> lines;
    for (const std::string& line : split(read(path("json")), '\n')) {
      lines.push_back(Json::parse(line));
    }
    return lines;
  }
  // Returns the log lines of a run that must succeed.
  std::vector<Json> trained(const Words& more) const {
    const Result result = run(command(more), kDeterministic);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    return lines();
  }
  static std::vector<double> losses(const std::vector<Json>& lines) {
    std::vector<double> losses;
    for (const Json& line : lines) {
      if (line.contains("step")) losses.push_back(line["loss"]);
    }
    return losses;
  }
  // Returns losses and gradient norms of each step.
  static std::vector<std::pair<double, double>> steps(const std::vector<Json>& lines) {
    std::vector<std::pair<double, double>> steps;
    for (const Json& line : lines) {
      if (line.contains("step")) steps.emplace_back(line["loss"], line["grad_norm"]);
    }
    return steps;
  }
  void expect_refused(const Words& more, const std::vector<std::string>& said) const {
    const Result result = run(command(more));
    EXPECT_THAT(result.code, ::testing::AnyOf(1, 2));
    for (const std::string& part : said) EXPECT_THAT(result.err, HasSubstr(part));
  }
  // Waits until a run has reported that many steps.
  void await_steps(const std::string& file, int64_t steps) const {
    const Deadline deadline = Deadline::after(testing::kPatience);
    while (std::ranges::count(read(file), '\n') < steps) {
      ASSERT_FALSE(deadline.passed()) << "no progress: " << read(file);
      std::this_thread::yield();
    }
  }
  // Kills one of the two ranks of a running job and checks how the other ends.
  void expect_a_clear_end(Process& job, int rank) const {
    const pid_t pid = process_of_rank(rank);
    ASSERT_GT(pid, 0);
    const Watched other(process_of_rank(1 - rank));
    ::kill(pid, SIGKILL);
    const Result result = job.finish(kEndsWithin);
    EXPECT_EQ(result.code, 128 + SIGKILL);
    EXPECT_FALSE(other.alive());
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(cat("tutti: rank ", rank, " (")),
                      HasSubstr(cat(", pid ", pid, ") was killed by signal 9 (Killed)"))));
  }

  int copies_ = 0;

 private:
  const std::string text_ = write_text();
};

// The model has matrix products large enough to be divided among threads.
TEST_F(TrainGpt, EveryNumberOfThreadsGivesTheSameBits) {
  for (const std::string type : {"f32", "bf16"}) {
    const Words wide = {"--width", "192", "--micro-batch", "24", "--batch",     "24",
                        "--steps", "4",   "--ranks",       "1",  "--precision", type};
    const auto one = steps(trained(wide + Words{"--threads", "1"}));
    EXPECT_THAT(one, SizeIs(4));
    EXPECT_EQ(steps(trained(wide + Words{"--threads", "2"})), one) << type;
    EXPECT_EQ(steps(trained(wide + Words{"--threads", "3"})), one) << type;
    EXPECT_EQ(steps(trained(wide)), one) << type << ", as many threads as there are processors";
  }
  expect_refused({"--threads", "0"}, {"--threads"});
}

TEST_F(TrainGpt, AveragesParametersEveryFewSteps) {
  const std::vector<Json> found =
      trained({"--steps", "12", "--average-every", "4", "--flush-every", "1"});
  ASSERT_THAT(found, SizeIs(13));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(found[i]["bytes_sent"] > 0, i % 4 == 3) << "step " << i + 1;
  }
  EXPECT_LT(found[11]["loss"], 0.95 * found[0]["loss"].get<double>()) << "it learns";
}

TEST_F(TrainGpt, ReportsEachWorker) {
  const std::vector<Json> found = trained(
      {"--steps", "12", "--sync", "diloco:6,2,1", "--outer-wire", "mx8", "--flush-every", "1"});
  ASSERT_THAT(found, SizeIs(13));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(found[i]["bytes_sent"] > 0, i % 3 == 2) << "step " << i + 1;
  }
  const Json& workers = found[12]["workers"];
  ASSERT_THAT(workers, SizeIs(2));
  for (int rank = 0; rank < 2; ++rank) {
    const Json& worker = workers.at(static_cast<size_t>(rank));
    EXPECT_EQ(worker.at("rank"), rank);
    EXPECT_EQ(worker.at("clock"), 12);
    EXPECT_GT(worker.at("bytes_sent"), 0);
    EXPECT_GE(worker.at("waited_s"), 0);
  }
}

// Data-parallel ranks have the same parameters, however ZeRO divides them. With local SGD they
// differ between two averages.
TEST_F(TrainGpt, DigestsShowWhetherRanksHaveEqualParameters) {
  const auto digests = [&](const Words& more) {
    std::vector<std::string> found;
    const Json summary = trained(Words{"--steps", "3", "--digest"} + more).back();
    for (const Json& worker : summary["workers"]) {
      found.push_back(worker.at("digest").get<std::string>());
    }
    return found;
  };
  const std::vector<std::string> whole = digests({});
  ASSERT_THAT(whole, SizeIs(2));
  EXPECT_EQ(whole[0], whole[1]);
  for (const char* stage : {"1", "2", "3"}) {
    EXPECT_EQ(digests({"--zero", stage}), whole) << stage;
  }
  const std::vector<std::string> local = digests({"--sync", "local:5"});
  EXPECT_NE(local[0], local[1]);
}

// An update of less than half a unit in the last place is lost, unless there are master weights or
// rounding is stochastic.
TEST_F(TrainGpt, SmallUpdatesOfBf16AreLostByNearestRounding) {
  const auto fallen = [&](const Words& more) {
    const std::vector<double> found = losses(trained(
        Words{"--steps", "40", "--lr", "2e-5", "--warmup", "1", "--lr-schedule", "constant"} +
        more));
    return found.front() - found.back();
  };
  const double with_masters = fallen({"--precision", "bf16"});
  EXPECT_LT(fallen({"--precision", "bf16", "--nearest-rounding"}), 0.7 * with_masters);
  EXPECT_GT(fallen({"--precision", "bf16", "--stochastic-rounding"}), 0.7 * with_masters);
  const Result refused = run(command({"--nearest-rounding"}));
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("only bf16 parameters"));
}

TEST_F(TrainGpt, StepsWaitForDataWithoutReadAheadThreads) {
  const Json summary = trained({"--steps", "3", "--workers", "0"}).back();
  for (const Json& worker : summary["workers"]) EXPECT_GT(worker.at("waited_for_data_s"), 0);
}

TEST_F(TrainGpt, ReportsEachStepAndTheEnd) {
  const std::vector<Json> found =
      trained({"--steps", "12", "--zero", "3", "--validate-every", "5"});
  ASSERT_THAT(found, SizeIs(13));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(found[i]["step"], i + 1);
    EXPECT_GT(found[i]["lr"], 0);
    EXPECT_GT(found[i]["grad_norm"], 0);
    EXPECT_GT(found[i]["tokens_per_s"], 0);
    EXPECT_GT(found[i]["bytes_sent"], 0);
    EXPECT_EQ(found[i].contains("validation_loss"), i == 4 || i == 9);
  }
  EXPECT_LT(found[11]["loss"], 0.95 * found[0]["loss"].get<double>()) << "it learns";
  const Json& summary = found.back();
  EXPECT_LT(summary["validation_loss"], found[0]["loss"]);
  EXPECT_EQ(summary["ranks"], 2);
  EXPECT_EQ(summary["resumed_at"], 0);
  EXPECT_GT(summary["tokens_per_s"], 0);
  const Json& memory = summary["memory"];
  EXPECT_GT(memory["gathered"], 0);
  EXPECT_GT(memory["activations"], 0);
  // With f32 parameters there are no master copies. AdamW has two states.
  EXPECT_EQ(memory["masters"], 0);
  EXPECT_EQ(memory["gradients"], memory["parameters"]);
  EXPECT_EQ(memory["optimizer"], 2 * memory["parameters"].get<int64_t>());
}

TEST_F(TrainGpt, LayoutChangesNotABit) {
  const std::vector<double> plain = losses(trained({"--steps", "6"}));
  ASSERT_THAT(plain, SizeIs(6));
  for (const Words& layout : {Words{"--zero", "1", "--recompute", "full"},
                              Words{"--zero", "2", "--bucket-mb", "0.01", "--no-overlap"},
                              Words{"--zero", "3", "--recompute", "selective"}}) {
    EXPECT_EQ(losses(trained(Words{"--steps", "6"} + layout)), plain) << layout[1];
  }
}

TEST_F(TrainGpt, ContextRanksChangeNotABit) {
  const Words words = {"--steps", "4", "--heads", "8", "--dropout", "0.1", "--clip", "0.5"};
  const auto plain = steps(trained(words + Words{"--ranks", "1"}));
  ASSERT_THAT(plain, SizeIs(4));
  for (const Words& layout :
       {Words{"--cp", "2"}, Words{"--cp", "4", "--ranks", "4", "--zero", "2"},
        Words{"--cp", "2", "--tp", "4", "--ranks", "8", "--cp-kind", "heads"},
        Words{"--cp", "2", "--pp", "2", "--ranks", "4", "--recompute", "full"}}) {
    EXPECT_EQ(steps(trained(words + layout)), plain) << ::testing::PrintToString(layout);
  }
  // The model cannot be divided by 3 without a change of rounding. Results then have the bits of
  // three context ranks, and a message reports that.
  const Result odd = run(command(words + Words{"--cp", "3", "--ranks", "3"}), kDeterministic);
  EXPECT_EQ(odd.code, 0);
  EXPECT_THAT(odd.err, HasSubstr("results are bitwise those of 3 context-parallel ranks"));
  const auto found = steps(lines());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(found[i].first, plain[i].first, 1e-5 * plain[i].first);
  }
}

// A step has 8 micro-batches, which each layout assigns to its ranks differently.
TEST_F(TrainGpt, ExpertRanksChangeNotABit) {
  const Words words = {"--model",        "qwen2moe", "--experts",       "8",  "--topk",  "2",
                       "--balance-loss", "0.1",      "--heads",         "4",  "--steps", "3",
                       "--hidden",       "24",       "--shared-hidden", "16", "--batch", "8"};
  const auto run = [&](const Words& layout) {
    std::vector<std::vector<double>> all;
    for (const Json& line : trained(words + layout)) {
      if (!line.contains("step")) continue;
      all.push_back({line["loss"], line["grad_norm"], line["balance_loss"], line["dropped"]});
    }
    return all;
  };
  const auto plain = run({"--ranks", "1"});
  ASSERT_THAT(plain, SizeIs(3));
  for (const Words& layout : {Words{"--ep", "2"}, Words{"--ranks", "8", "--ep", "8", "--zero", "2"},
                              Words{"--ranks", "4", "--tp", "2", "--ep", "4"},
                              Words{"--ranks", "4", "--cp", "2", "--ep", "2"},
                              Words{"--ranks", "4", "--pp", "2", "--ep", "2", "--zero", "1"}}) {
    EXPECT_EQ(run(layout), plain) << ::testing::PrintToString(layout);
  }
}

TEST_F(TrainGpt, PipelineChangesNotABit) {
  const Words words = {"--steps", "4", "--layers", "6", "--batch", "6"};
  const std::vector<double> plain = losses(trained(words));
  ASSERT_THAT(plain, SizeIs(4));
  for (const Words& pipeline :
       {Words{"--pp", "2", "--ranks", "4"},
        Words{"--pp", "2", "--dp", "2", "--ranks", "4", "--zero", "1", "--schedule", "zb-h1"},
        Words{"--pp", "4", "--dp", "2", "--ranks", "8", "--cut", "0,1,2,7"},
        Words{"--pp", "2", "--dp", "2", "--ranks", "4", "--schedule", "interleaved", "--virtual",
              "3", "--recompute", "full"}}) {
    EXPECT_EQ(losses(trained(words + pipeline)), plain) << ::testing::PrintToString(pipeline);
  }
}

// The run has one more step after 16 steps and a flush.
TEST_F(TrainGpt, StepMayBeAloneBetweenFlushes) {
  for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
    const std::string batch = schedule == "pipedream" ? "1" : "2";
    const Result result =
        run(command({"--pp", "3", "--ranks", "3", "--layers", "3", "--untied", "--clip", "0",
                     "--batch", batch, "--steps", "17", "--schedule", schedule}));
    EXPECT_EQ(result.code, 0) << schedule << result.err;
    EXPECT_THAT(lines(), SizeIs(17 + 1));
  }
}

TEST_F(TrainGpt, CheckpointContinuesInAnyPipeline) {
  const Words words = {"--layers",  "6",  "--batch", "6", "--warmup",      "2",
                       "--zero",    "1",  "--steps", "6", "--lr-schedule", "constant",
                       "--dropout", "0.1"};
  const std::vector<Json> whole = trained(words);
  const Words pipeline = {"--dp", "2", "--pp", "2", "--ranks", "4"};
  Words half = words;
  *(std::ranges::find(half, "--steps") + 1) = "3";
  trained(half + pipeline + Words{"--checkpoint", path("half")});
  for (const Words& layout :
       {Words{"--dp", "2", "--ranks", "2"}, Words{"--dp", "1", "--pp", "4", "--ranks", "4"},
        Words{"--dp", "4", "--ranks", "4"},
        Words{"--dp", "2", "--pp", "4", "--ranks", "8", "--schedule", "zb-h2"}}) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const std::string copy = path(cat("copy-", copies_++));
    std::filesystem::copy(path("half"), copy, std::filesystem::copy_options::recursive);
    std::filesystem::remove(path("json"));  // a resumed run appends to it
    const std::vector<Json> found =
        trained(words + layout + Words{"--checkpoint", copy, "--resume"});
    EXPECT_EQ(found.back()["resumed_at"], 3);
    const std::vector<double> all = losses(whole);
    const std::vector<double> next = losses(found);
    ASSERT_THAT(next, SizeIs(3));
    const bool same = layout[1] == "2";
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(next[i], all[3 + i], same ? 0 : 1e-6 * all[3 + i]) << "step " << 4 + i;
    }
    const double validation = whole.back()["validation_loss"];
    EXPECT_NEAR(found.back()["validation_loss"], validation, same ? 0 : 1e-6 * validation);
  }
}

TEST_F(TrainGpt, EveryPrecisionLearns) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const auto found = trained({"--steps", "25", "--zero", "2", "--precision", precision});
    ASSERT_THAT(found, SizeIs(26));
    EXPECT_LT(found[24]["loss"], 0.95 * found[0]["loss"].get<double>()) << precision;
    EXPECT_EQ(found[24].contains("loss_scale"), precision == "fp16");
    const Json& memory = found.back()["memory"];
    EXPECT_EQ(memory["masters"], 2 * memory["gradients"].get<int64_t>()) << "of the same shard";
  }
}

TEST_F(TrainGpt, AccumulatesMicroBatches) {
  const std::vector<double> whole = losses(trained({"--steps", "3", "--batch", "6"}));
  const Words words = command({"--steps", "3", "--accumulate", "3"});
  const Result refused = run(words);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--batch"), HasSubstr("--accumulate")));
  Words alone = words;
  const auto batch = std::ranges::find(alone, "--batch");
  alone.erase(batch, batch + 2);
  ASSERT_EQ(run(alone, kDeterministic).code, 0);
  EXPECT_EQ(losses(lines()), whole) << "3 micro-batches of 1 on 2 ranks";
}

TEST_F(TrainGpt, DivergedRunNamesStepRankAndLayer) {
  expect_refused(
      {"--steps", "50", "--lr", "1e30", "--warmup", "0", "--clip", "0", "--optimizer", "sgd"},
      {"step ", "the output of ", "rank 0", "is not finite", "smaller learning rate"});
}

// Each stage counts the steps of its own compression.
TEST_F(TrainGpt, CompressionResumesInStages) {
  for (const Words& compression :
       {Words{"--compression", "topk:0.1", "--compression-warmup", "3"},
        Words{"--compression", "onebit-adam", "--compression-warmup", "3", "--clip", "0"}}) {
    SCOPED_TRACE(compression[1]);
    const Words words =
        Words{"--steps", "6", "--pp", "2", "--dp", "2", "--ranks", "4", "--untied"} + compression;
    const Words saved = words + Words{"--checkpoint", path(compression[1])};
    const std::vector<double> whole =
        losses(trained(saved + Words{"--checkpoint-every", "2", "--keep", "0"}));
    ASSERT_THAT(whole, SizeIs(6));
    const Result resumed = run(command(saved + Words{"--resume", "2"}), kDeterministic);
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(losses(lines()), whole);
  }
}

TEST_F(TrainGpt, WrongOptionsAreRefused) {
  expect_refused({"--zero", "4"}, {"--zero", "4"});
  expect_refused({"--pp", "2", "--cut", "0,9"}, {"4 units", "2 chunks", "0,9"});
  expect_refused({"--pp", "2", "--cut", "0,x"}, {"--cut", "0,x"});
  expect_refused({"--pp", "5", "--ranks", "5"}, {"4", "5"});
  expect_refused({"--pp", "2", "--dp", "2", "--ranks", "3"}, {"3", "2 (data) x 2 (pipeline)"});
  expect_refused({"--pp", "2", "--schedule", "chimera", "--zero", "3"},
                 {"chimera", "ZeRO stage 3"});
  expect_refused({"--average-every", "4", "--zero", "1"}, {"ZeRO stage 1", "--sync"});
  expect_refused({"--sync", "ps", "--pp", "2"}, {"sharded over ranks", "--sync"});
  expect_refused({"--sync", "adpsgd", "--pp", "2"}, {"sharded over ranks", "--sync"});
  expect_refused({"--average-every", "4", "--cp", "2"}, {"ranks of one worker", "--sync"});
  expect_refused({"--ep", "2"}, {"model gpt2 has no experts", "--ep"});
  expect_refused({"--ep", "4"}, {"4 expert-parallel ranks", "--ep", "1, 2"});
  expect_refused({"--ep", "2", "--model", "mixtral", "--experts", "1", "--topk", "1"},
                 {"1 experts cannot be divided over 2 ranks", "--ep", "at most 1"});
  expect_refused({"--cp", "3"}, {"2 ranks do not form a mesh of 3 (context)"});
  expect_refused({"--cp-kind", "ring"}, {"--cp-kind has no effect without --cp"});
  expect_refused({"--cp", "2", "--cp-kind", "rings"}, {"--cp-kind", "rings"});
  expect_refused({"--sync", "hogwild"}, {"--sync", "hogwild", "gossip:ring"});
  expect_refused({"--outer-lr", "0.5"}, {"--outer-lr has no effect without --sync diloco:H"});
  expect_refused({"--secure-sums"}, {"--secure-sums has no effect without --sync fedavg:K"});
  expect_refused({"--labels-per-client", "2"}, {"separate data", "--sync fedavg:K"});
  expect_refused({"--labels-per-client", "2", "--sync", "fedavg:4"}, {"--labels-per-client"});
  expect_refused({"--average-every", "4", "--compression", "bf16"}, {"--compression", "--sync"});
  expect_refused({"--layers", "1000000"}, {"--layers", "from 0 to 10000"});
  expect_refused({"--heads", "5"}, {"32", "5"});
  expect_refused({"--precision", "int8"}, {"--precision", "int8"});
  expect_refused({"--loss-scale", "much", "--precision", "fp16"}, {"--loss-scale", "much"});
  expect_refused({"--recompute", "some"}, {"--recompute", "some"});
  expect_refused({"--epochs", "1", "--steps", "5"}, {"--steps", "--epochs"});
  expect_refused({"--lr", "-1"}, {"--lr", "-1"});
  expect_refused({"--dropout", "1"}, {"dropout", "1"});
  expect_refused({"--context", "100000"}, {"shorter than the context of 100000", "--context"});
  expect_refused({"--pp", "2", "--schedule", "pipedream", "--model", "mixtral", "--untied",
                  "--balance-loss", "0", "--balance-bias", "1e-3", "--clip", "0"},
                 {"pipedream does not support a bias", "--balance-bias 0"});
  expect_refused({"--resume"}, {"--resume", "--checkpoint DIR"});
  expect_refused({"--resume", "--checkpoint", path("none")}, {"/none"});
  expect_refused({"--initial", path("none")}, {path("none")});
}

// --- kill -9 ---

TEST_F(TrainGpt, DeathOfARankEndsTheOther) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    Process job = start(command({"--steps", "1000000", "--zero", "3"}));
    await_steps(path("json"), 20);
    expect_a_clear_end(job, rank);
    EXPECT_THAT(read(path("json")), HasSubstr("{\"step\":20,\"loss\":")) << "what was done stays";
    std::filesystem::remove(path("json"));
  }
}

// Ranks repeatedly die while they save. Each time the run resumes at the last complete checkpoint,
// and the result is that of an uninterrupted run.
TEST_F(TrainGpt, KilledRunResumesAndTrainsTheSameModel) {
  const Words words = {"--steps", "200", "--zero", "3", "--dropout", "0.1"};
  const std::vector<double> whole = losses(trained(words));
  ASSERT_THAT(whole, SizeIs(200));
  const auto expect_as_in_whole = [&] {
    const std::string text = read(path("json"));
    size_t found = 0;
    for (const std::string& line : split(text.substr(0, text.rfind('\n')), '\n')) {
      const Json step = Json::parse(line);
      if (!step.contains("step")) continue;
      EXPECT_EQ(step["loss"], whole.at(step["step"].get<size_t>() - 1)) << step;
      ++found;
    }
    return found;
  };

  Words saving = words + Words{"--checkpoint", path("checkpoint")};
  int64_t saved = 0;
  for (const int64_t steps : {2, 5, 3, 7}) {
    std::filesystem::remove(path("json"));
    Process job = start(command(saving + Words{"--checkpoint-every", "1"}), kDeterministic);
    await_steps(path("json"), steps);
    expect_a_clear_end(job, steps % 2);
    EXPECT_GE(expect_as_in_whole(), static_cast<size_t>(steps));
    saved += steps - 1;  // lower bound, because a step's line is written before the step is saved
    if (saving.back() != "--resume") saving.push_back("--resume");
  }
  std::filesystem::remove(path("json"));
  const int64_t resumed_at = trained(saving).back()["resumed_at"];
  EXPECT_GE(resumed_at, saved);
  EXPECT_EQ(expect_as_in_whole(), whole.size() - static_cast<size_t>(resumed_at));
}

}  // namespace
}  // namespace tutti::tool
