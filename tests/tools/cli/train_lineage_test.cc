// Tests `tutti train --checkpoint`: ownership of the directory, resumable runs, and signals.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Process::Environment kDeterministic = {{"TUTTI_DETERMINISTIC", "1"}};

class TrainLineage : public Cli {
 protected:
  // Returns a training of about 35 000 parameters; `more` overrides these options.
  Words command(const Words& more) const {
    const std::map<std::string, std::string> defaults = {
        {"--model", "gpt2"}, {"--layers", "2"},     {"--heads", "2"},  {"--width", "32"},
        {"--context", "16"}, {"--batch", "4"},      {"--data", text_}, {"--json", path("json")},
        {"--ranks", "2"},    {"--micro-batch", "1"}};
    Words words = {"train"};
    words.insert(words.end(), more.begin(), more.end());
    for (const auto& [option, value] : defaults) {
      if (std::ranges::find(more, option) == more.end()) words.insert(words.end(), {option, value});
    }
    return words;
  }
  Words saving(const Words& more) const {
    Words words = {"--checkpoint", path("run")};
    words.insert(words.end(), more.begin(), more.end());
    return command(words);
  }
  Result trained(const Words& words) const {
    Result result = run(words, kDeterministic);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  // Expects one line of error before ranks are started.
  void expect_refused(const Words& words, const std::vector<std::string>& said) const {
    const Result result = run(words, kDeterministic);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    for (const std::string& part : said) EXPECT_THAT(result.err, HasSubstr(part));
  }
  std::vector<Json> lines() const {
    std::vector<Json> lines;
    for (const std::string& line : split(read(path("json")), '\n')) {
      lines.push_back(Json::parse(line));
    }
    return lines;
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const Json& line : lines()) {
      if (line.contains("step")) steps.push_back(line["step"]);
    }
    return steps;
  }
  // Returns the losses by step; a repeated step has its last loss.
  std::map<int64_t, double> losses() const {
    std::map<int64_t, double> losses;
    for (const Json& line : lines()) {
      if (line.contains("step")) losses[line["step"]] = line["loss"];
    }
    return losses;
  }
  void await_steps(size_t count) const {
    const Deadline deadline = Deadline::after(std::chrono::minutes(1));
    while (!deadline.passed() &&
           std::ranges::count(read(path("json")), '\n') < static_cast<ptrdiff_t>(count)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(deadline.passed());
  }

  const std::string text_ = write_text();
};

TEST_F(TrainLineage, SecondRunInAUsedDirectoryIsRefused) {
  trained(saving({"--steps", "3"}));
  const std::string history = read(path("json"));
  const std::string old = lines().back()["run"];
  ASSERT_THAT(old, SizeIs(32));
  expect_refused(saving({"--steps", "3"}),
                 {cat("holds run ", old, " (its last step is 3)"), "; the new run ",
                  "was not started", "--resume", "another directory", "--overwrite"});
  EXPECT_EQ(read(path("json")), history) << "nor is anything else taken away";
  for (const char* more : {"--resume", "--overwrite"}) {
    expect_refused(command({"--checkpoint", path("run/step-00000003"), more}),
                   {"is the folder of one step", "--checkpoint ", "/run --resume 3"});
  }
  trained(saving({"--steps", "2", "--overwrite"}));
  EXPECT_NE(lines().back()["run"], old);
  EXPECT_FALSE(std::filesystem::exists(path("run/step-00000003")));
  EXPECT_TRUE(std::filesystem::exists(path("run/step-00000002")));
}

TEST_F(TrainLineage, ResumeNamesDifferences) {
  trained(saving({"--steps", "3"}));
  const auto refused = [&](const Words& more, const std::vector<std::string>& said) {
    Words words = {"--steps", "6", "--resume"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refused(saving(words), said);
  };
  refused({"--lr", "0.01"}, {"lr: 0.001 in the checkpoint, 0.01 now", "--allow-changed lr"});
  refused({"--weight-decay", "0"}, {"weight-decay: 0.1 in", "0 now"});
  refused({"--clip", "2", "--dropout", "0.2"}, {"clip: 1 in the", "; dropout: 0 in the"});
  refused({"--precision", "bf16"}, {"precision: f32 in the checkpoint, bf16 now"});
  refused({"--optimizer", "sgd"}, {"optimizer: adamw in the checkpoint, sgd now"});
  refused({"--micro-batch", "2"}, {"micro-batch: 1 in the checkpoint, 2 now"});
  std::ofstream(path("other")) << read(text_).substr(7);
  refused({"--data", path("other")}, {"data: ", "fingerprint", "in the checkpoint"});
  refused({"--allow-changed", "learning"}, {"unknown setting \"learning\"", "--allow-changed"});
  expect_refused(saving({"--resume", "yes"}), {"unknown step \"yes\"", "--resume"});
  expect_refused(saving({"--resume", "2"}), {"no step 2 found in ", "use an existing step: 3"});
  expect_refused(command({"--overwrite"}), {"--overwrite requires", "--checkpoint DIR"});
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));

  const Result result = trained(saving({"--steps", "6", "--resume", "--lr", "0.01", "--clip", "2",
                                        "--allow-changed", "lr,clip", "--zero", "1"}));
  EXPECT_THAT(result.err, AllOf(HasSubstr("clip: 1 in the checkpoint, 2 now"),
                                HasSubstr("lr: 0.001 in the checkpoint, 0.01 now")));
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6)) << "the history is whole";
  EXPECT_EQ(lines()[4]["resumed_at"], 3);
  EXPECT_GT(lines()[4]["tokens_per_s_step"], 0);
  EXPECT_GT(lines()[4]["elapsed_s"], 0);
  EXPECT_GT(lines()[4]["processor_s"], 0);
}

TEST_F(TrainLineage, SeedMayChangeByEitherOfItsNames) {
  trained(saving({"--steps", "3"}));
  for (const std::string name : {"training.seed", "seed"}) {
    trained(saving({"--steps", name == "seed" ? "5" : "4", "--resume", "--seed",
                    name == "seed" ? "3" : "2", "--allow-changed", name}));
  }
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5));
}

// The command is the same each time, as from launchers that restart ranks.
TEST_F(TrainLineage, ResumesIfThereIsACheckpoint) {
  trained(saving({"--steps", "3", "--resume", "auto"}));
  EXPECT_EQ(lines().back()["resumed_at"], 0);
  const std::string run = lines().back()["run"];
  trained(saving({"--steps", "6", "--resume", "auto"}));
  EXPECT_EQ(lines().back()["resumed_at"], 3);
  EXPECT_EQ(lines().back()["run"], run);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6));
  expect_refused(command({"--resume", "auto"}), {"--resume requires", "--checkpoint DIR"});
}

TEST_F(TrainLineage, DamagedStepIsReplacedByTheOneBefore) {
  trained(saving({"--steps", "6", "--checkpoint-every", "2"}));
  const std::map<int64_t, double> whole = losses();
  std::filesystem::resize_file(path("run/step-00000006/rank-0000-of-0002.safetensors"), 99);
  const Result result = trained(saving({"--steps", "6", "--resume"}));
  EXPECT_THAT(result.err, AllOf(HasSubstr("skipping step-00000006"), HasSubstr("has 99 bytes"),
                                HasSubstr("continues from step 4")));
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6)) << "each once";
  EXPECT_EQ(losses(), whole);
}

TEST_F(TrainLineage, DirectoryHasOneJobAtATime) {
  Process job = start(saving({"--steps", "100000", "--checkpoint-every", "1"}));
  await_steps(3);
  const pid_t holder = process_of_rank(0);
  expect_refused(saving({"--resume"}), {"another job uses", cat("process ", holder)});
  ::kill(holder, SIGKILL);
  EXPECT_NE(job.finish().code, 0);
  // The lock of a killed job is no obstacle.
  EXPECT_THAT(trained(saving({"--steps", "5", "--overwrite"})).err, IsQuiet());
}

// --- signals ---

TEST_F(TrainLineage, SignalEndsARunAfterASavedStep) {
  const Words size = {"--steps", "400", "--dropout", "0.1"};
  const auto with = [&](const Words& more) {
    Words words = size;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const auto& [number, layout] : std::map<int, Words>{
           {SIGINT, {"--ranks", "1"}}, {SIGTERM, {"--ranks", "2"}}, {SIGUSR1, {"--pp", "2"}}}) {
    SCOPED_TRACE(number);
    std::filesystem::remove(path("json"));
    std::filesystem::remove_all(path("run"));
    Process job = start(saving(with(layout)), kDeterministic);
    await_steps(5);
    const int sent = number == SIGUSR1 ? SIGTERM : number;
    // In a pipeline only one rank receives the signal, and all stop after the same step.
    ::kill(number == SIGUSR1 ? process_of_rank(1) : job.pid(), sent);
    const Result stopped = job.finish();
    EXPECT_EQ(stopped.code, 128 + sent) << stopped.err;
    EXPECT_THAT(stopped.out, AllOf(HasSubstr(cat("stopped          by signal ", sent)),
                                   HasSubstr("continue with --resume")));
    const Json last = lines().back();
    EXPECT_EQ(last["stopped_by_signal"], sent);
    const int64_t step = last["stopped_at"];
    EXPECT_GE(step, 5);
    EXPECT_LT(step, 400);
    EXPECT_EQ(static_cast<size_t>(step), losses().size()) << "each step that was done is told";
    Words rest = with(layout);
    rest.emplace_back("--resume");
    trained(saving(rest));
    EXPECT_EQ(lines().back()["resumed_at"], step) << "and was saved";
    EXPECT_EQ(losses().size(), 400u);
  }
}

TEST_F(TrainLineage, SecondSignalEndsItAtOnce) {
  // The steps take minutes, so that no rank finishes one.
  Process job = start(command({"--steps", "5", "--batch", "200000", "--ranks", "1"}));
  const Deadline deadline = Deadline::after(std::chrono::minutes(1));
  const auto catches = [&] {
    const std::string status = read(cat("/proc/", job.pid(), "/status"));
    const size_t at = status.find("SigCgt:");
    return at != status.npos &&
           std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGTERM - 1) & 1;
  };
  while (!catches() && !deadline.passed()) std::this_thread::yield();
  ASSERT_FALSE(deadline.passed());
  ::kill(job.pid(), SIGTERM);
  const auto waits = [&] {
    const std::string status = read(cat("/proc/", job.pid(), "/status"));
    const size_t at = status.find("ShdPnd:");
    return at != status.npos && std::stoull(status.substr(at + 7), nullptr, 16) != 0;
  };
  while (waits() && !deadline.passed()) std::this_thread::yield();
  ::kill(job.pid(), SIGTERM);
  const Result result = job.finish(std::chrono::seconds(20));
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("stopped")));
}

}  // namespace
}  // namespace tutti::tool
