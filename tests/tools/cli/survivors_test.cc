// Tests jobs that lose ranks and continue: `tutti train --min-ranks`, `tutti run --min-ranks`,
// `--restarts`.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kSteps = 12;

class Survivors : public Cli {
 protected:
  // Returns the command of a training that writes the losses of its steps; `more` options come
  // last.
  Words training(const Words& more, const std::string& losses) const {
    Words words = {"train",     "--data",    text_, "--model",       "gpt2",      "--layers",
                   "2",         "--heads",   "2",   "--width",       "32",        "--context",
                   "16",        "--batch",   "8",   "--micro-batch", "2",         "--steps",
                   cat(kSteps), "--threads", "1",   "--json",        path(losses)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Returns the losses by step; for a repeated step, the loss of its last repetition.
  std::map<int, double> losses(const std::string& file) const {
    std::map<int, double> found;
    for (const std::string& line : split(read(path(file)), '\n')) {
      const Json object = Json::parse(line);
      if (object.contains("step")) found[object["step"].get<int>()] = object["loss"];
    }
    return found;
  }

  // Counts complete lines.
  int64_t steps_in(const std::string& file) const {
    return std::filesystem::exists(path(file)) ? std::ranges::count(read(path(file)), '\n') : 0;
  }

  // Expects exactly one recovery line in the log. It lists only `rank` in lost_ranks, and the next
  // logged step is continues_from + 1.
  void expect_one_loss(const std::string& file, int rank) const {
    int events = 0, last = 0;
    std::optional<int> from;
    for (const std::string& line : split(read(path(file)), '\n')) {
      const Json object = Json::parse(line);
      if (object.contains("lost_ranks")) {
        ++events;
        from = object["continues_from"].get<int>();
        EXPECT_EQ(object["lost_ranks"], Json({rank}));
        EXPECT_LE(*from, last);
        // The dead rank may have logged a step without reporting its end to the others.
        EXPECT_GE(object["lost_after_step"].get<int>(), *from);
      } else if (object.contains("step")) {
        last = object["step"].get<int>();
        if (from) {
          EXPECT_EQ(last, *std::exchange(from, std::nullopt) + 1);
        }
      }
    }
    EXPECT_EQ(events, 1);
  }

  void expect_the_same(const std::map<int, double>& losses,
                       const std::map<int, double>& undisturbed) const {
    ASSERT_THAT(losses, SizeIs(kSteps));
    for (const auto& [step, loss] : undisturbed) {
      EXPECT_NEAR(losses.at(step), loss, 1e-5) << "step " << step;
    }
  }

  const std::string text_ = write_text();
};

// In each layout, rank 0, 1 or 3 dies at a message during the run.
TEST_F(Survivors, LossesEqualThoseOfARunWithoutDeaths) {
  ASSERT_EQ(run(training({"--ranks", "4"}, "undisturbed")).code, 0);
  const std::map<int, double> undisturbed = losses("undisturbed");
  ASSERT_THAT(undisturbed, SizeIs(kSteps));
  const std::vector<Words> layouts = {{},
                                      {"--zero", "1"},
                                      {"--zero", "3"},
                                      {"--pp", "2"},
                                      {"--pp", "4", "--schedule", "gpipe", "--cut", "0,1,2,3"},
                                      {"--copy-every", "4"}};
  for (const Words& layout : layouts) {
    for (const std::string death : {"0:30", "1:90", "3:130"}) {
      Words more = {"--ranks", "4", "--min-ranks", "2"};
      more.insert(more.end(), layout.begin(), layout.end());
      SCOPED_TRACE(cat(::testing::PrintToString(layout), " kill:", death));
      // A run whose rank 0 dies before its first step would append to an existing file.
      std::filesystem::remove(path("losses"));
      const Result result = run(training(more, "losses"), {{"TUTTI_FAULT", "kill:" + death}});
      ASSERT_EQ(result.code, 0) << result.err;
      EXPECT_THAT(
          result.err,
          AllOf(HasSubstr(cat("rank ", death[0], " (")), HasSubstr("was killed by signal 9"),
                HasSubstr("3 of 4 ranks continue"), HasSubstr("none is lost or repeated")));
      expect_the_same(losses("losses"), undisturbed);
      expect_one_loss("losses", death[0] - '0');
    }
  }
}

TEST_F(Survivors, ReadTheStateFromDiskIfMemoryLacksIt) {
  constexpr int kMany = 300;
  const Words steps = {"--ranks", "4", "--steps", cat(kMany)};
  ASSERT_EQ(run(training(steps, "undisturbed")).code, 0);
  Words more = steps;
  for (const std::string word :
       {"--min-ranks", "2", "--copies", "1", "--checkpoint-every", "10", "--checkpoint", "run"}) {
    more.push_back(word == "run" ? path(word) : word);
  }
  Process job = start(training(more, "losses"));
  ASSERT_THAT(job.read_lines(4), SizeIs(4)) << "some tenths are done";
  // Kills a rank and the holder of the copy of its state.
  const std::vector<pid_t> both = {process_of_rank(0), process_of_rank(1)};
  for (const pid_t pid : both) ::kill(pid, SIGKILL);
  const Result result = job.finish();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 of 4 ranks continue from the last checkpoint"));
  const std::map<int, double> found = losses("losses");
  ASSERT_THAT(found, SizeIs(kMany));
  for (const auto& [step, loss] : losses("undisturbed")) EXPECT_NEAR(found.at(step), loss, 1e-4);
}

// The copies in memory still have the initial state.
TEST_F(Survivors, ContinueFromANewerPublishedStep) {
  Words more = {"--ranks",      "3",    "--min-ranks",        "2",  "--steps",      "300",
                "--copy-every", "1000", "--checkpoint-every", "10", "--checkpoint", path("run")};
  Process job = start(training(more, "losses"));
  ASSERT_THAT(job.read_lines(4), SizeIs(4)) << "some tenths are done";
  ::kill(process_of_rank(0), SIGKILL);
  const Result result = job.finish();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 of 3 ranks continue from the last checkpoint"));
  EXPECT_THAT(losses("losses"), SizeIs(300));
  bool told = false;
  for (const std::string& line : split(read(path("losses")), '\n')) {
    const Json object = Json::parse(line);
    if (!object.contains("continues_from")) continue;
    told = true;
    EXPECT_GE(object["continues_from"].get<int>(), 80);
    EXPECT_EQ(object["continues_from"].get<int>() % 10, 0);
  }
  EXPECT_TRUE(told);
}

// Rank 3 dies while the others take over the state of rank 0, or while they store their first
// copies afterwards. Neither of the two ranks holds the other's copy.
TEST_F(Survivors, SurviveADeathDuringRecovery) {
  const Words words = {"train", "--data",   text_, "--ranks",   "6", "--min-ranks", "2", "--steps",
                       "30",    "--hidden", "32",  "--threads", "1"};
  for (const int second : {11, 14, 17, 20, 23, 29}) {
    const std::string faults = cat("kill:0:11,kill:3:", second);
    SCOPED_TRACE(faults);
    const Result result = run(words, {{"TUTTI_FAULT", faults}});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank 0 ("), HasSubstr("rank 3 (")));
  }
}

// Rank 0 and one of the three other ranks die. Each rank has copies at two others.
TEST_F(Survivors, SurviveTwoDeathsAtOnce) {
  for (const int other : {1, 2, 3}) {
    const std::string faults = cat("kill:0:60,kill:", other, ":60");
    SCOPED_TRACE(faults);
    const Result result =
        run(training({"--ranks", "4", "--min-ranks", "2"}, "losses"), {{"TUTTI_FAULT", faults}});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(cat("rank ", other, " (")));
  }
}

// A rank and the holder of its copy die, and there is no checkpoint.
TEST_F(Survivors, TrainingEndsIfPartOfTheStateIsLost) {
  Process job = start(
      training({"--ranks", "4", "--min-ranks", "2", "--copies", "1", "--steps", "3000"}, "losses"));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "a tenth is done";
  const std::vector<pid_t> both = {process_of_rank(0), process_of_rank(1)};
  for (const pid_t pid : both) ::kill(pid, SIGKILL);
  const Result result = job.finish();
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("only in the memory of dead ranks"));
}

// A spare replaces a dead rank.
TEST_F(Survivors, SpareReplacesADeadRank) {
  const Result result =
      run(training({"--ranks", "2", "--spares", "1", "--min-ranks", "2"}, "losses"),
          {{"TUTTI_FAULT", "kill:1:90"}});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 of 3 ranks continue"));
  EXPECT_THAT(result.out, HasSubstr("on 2 ranks"));
  EXPECT_THAT(losses("losses"), SizeIs(kSteps));
}

// Without --min-ranks, the minimum is the number of training ranks.
TEST_F(Survivors, SparesDoNotTrainWhileNoRankDies) {
  const Words two = {"--ranks", "2", "--spares", "1"};
  const Result undisturbed = run(training(two, "losses"));
  EXPECT_EQ(undisturbed.code, 0) << undisturbed.err;
  EXPECT_THAT(undisturbed.out, HasSubstr("on 2 ranks"));
  const Result result = run(training(two, "losses"), {{"TUTTI_FAULT", "kill:1:90"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 of 3 ranks continue"));
  EXPECT_THAT(result.out, HasSubstr("on 2 ranks"));
}

// The directory has a checkpoint of another run with other settings.
class SurvivorsOfARunWithADirectory : public Survivors {
 protected:
  SurvivorsOfARunWithADirectory() {
    EXPECT_EQ(
        run(training({"--steps", "8", "--ranks", "2", "--checkpoint", path("run")}, "old")).code,
        0);
  }
  // Runs a training whose ranks die according to `faults`, and returns the run's identity.
  std::string trained(const Words& more, const std::string& faults) const {
    Words words = {"--checkpoint", path("run")};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(training(words, "losses"), {{"TUTTI_FAULT", faults}});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("ranks continue"));
    return identity("losses");
  }
  std::string identity(const std::string& file) const {
    const Words lines = split(read(path(file)), '\n');
    const auto last = std::ranges::find_if(
        lines, [](const std::string& line) { return line.find("\"run\"") != line.npos; });
    return last == lines.end() ? "" : Json::parse(*last)["run"].get<std::string>();
  }
};

TEST_F(SurvivorsOfARunWithADirectory, OverwriteReplacesTheEarlierRun) {
  for (const Words& more :
       {Words{"--ranks", "2", "--min-ranks", "1"}, Words{"--ranks", "2", "--spares", "1"}}) {
    Words words = {"--overwrite"};
    words.insert(words.end(), more.begin(), more.end());
    std::filesystem::remove(path("losses"));
    const std::string old = identity(std::filesystem::exists(path("second")) ? "second" : "old");
    EXPECT_NE(trained(words, "kill:1:90"), old);
    EXPECT_FALSE(std::filesystem::exists(path("run/step-00000008")));
    EXPECT_THAT(losses("losses"), SizeIs(kSteps)) << "they began anew";
    std::filesystem::rename(path("losses"), path("second"));
  }
}

TEST_F(SurvivorsOfARunWithADirectory, ResumedRunKeepsItsChangedSettings) {
  for (const Words& more : {Words{"--min-ranks", "1", "--steps", "20"},
                            Words{"--spares", "1", "--steps", "40", "--checkpoint-every", "22"}}) {
    Words words = {"--resume", "--ranks", "2", "--lr", "0.01", "--allow-changed", "lr"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(trained(words, "kill:1:60"), identity("old"));
  }
}

// Spares receive the settings that the first ranks derived from the options, such as the batch
// size.
TEST_F(Survivors, KeepTheBatchOfTheFirstRanks) {
  const Words words = {"train", "--data",    text_, "--steps",         "12", "--hidden",
                       "32",    "--threads", "1",   "--micro-batches", "2",  "--micro-batch",
                       "8",     "--ranks",   "3",   "--spares",        "1",  "--min-ranks",
                       "2"};
  const Result result = run(words, {{"TUTTI_FAULT", "kill:1:60,kill:2:60"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("with 48 samples as before"));
}

// Kills ten random ranks, including spares, each after the run has progressed by some steps.
TEST_F(Survivors, TrainingContinuesAfterManyDeaths) {
  constexpr int kMany = 600;
  constexpr int kRanks = 4;
  constexpr int kSpares = 10;
  ASSERT_EQ(run(training({"--ranks", cat(kRanks), "--steps", cat(kMany)}, "undisturbed")).code, 0);
  Process job = start(training(
      {"--ranks", cat(kRanks), "--spares", cat(kSpares), "--min-ranks", "1", "--steps", cat(kMany)},
      "losses"));
  std::vector<int> alive(kRanks + kSpares);
  std::iota(alive.begin(), alive.end(), 0);
  std::mt19937 random(1);
  for (int death = 1; death <= kSpares; ++death) {
    const Deadline deadline = Deadline::after(testing::kPatience);
    while (steps_in("losses") < 40 * death && !deadline.passed()) {
    }
    ASSERT_GE(steps_in("losses"), 40 * death);
    const auto victim = alive.begin() + static_cast<std::ptrdiff_t>(random() % alive.size());
    SCOPED_TRACE(cat("death ", death, ", of rank ", *victim));
    const pid_t pid = process_of_rank(*victim);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    alive.erase(victim);
  }
  const Result result = job.finish();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("on 4 ranks"));
  const std::map<int, double> found = losses("losses");
  ASSERT_THAT(found, SizeIs(kMany));
  for (const auto& [step, loss] : losses("undisturbed")) {
    EXPECT_NEAR(found.at(step), loss, 0.01 * loss) << "step " << step;
  }
}

// Owners of preemptible machines announce termination with SIGTERM.
TEST_F(Survivors, ContinueWithoutATerminatedRank) {
  constexpr int kMany = 4000;
  Process job =
      start(training({"--ranks", "3", "--min-ranks", "2", "--steps", cat(kMany)}, "losses"));
  ASSERT_THAT(job.read_lines(1), SizeIs(1));
  ASSERT_EQ(::kill(process_of_rank(1), SIGTERM), 0);
  const Result result = job.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("leaves after signal 15"),
                                HasSubstr("2 of 3 ranks continue from the state after step")));
  EXPECT_THAT(losses("losses"), SizeIs(kMany));
}

// A spare's death interrupts no rank, and the run is not repeated.
TEST_F(Survivors, DeathOfASpareInterruptsNothing) {
  Process job = start(
      training({"--ranks", "2", "--spares", "1", "--min-ranks", "1", "--steps", "2000"}, "losses"));
  ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "a tenth is done";
  ASSERT_EQ(::kill(process_of_rank(2), SIGKILL), 0);
  const Result result = job.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  const size_t first = result.out.find("validation loss");
  ASSERT_NE(first, std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("validation loss", first + 1), std::string::npos) << result.out;
}

TEST_F(Survivors, OneSpareCanReplaceASingleRank) {
  const Result result =
      run(training({"--ranks", "1", "--spares", "1"}, "losses"), {{"TUTTI_FAULT", "kill:0:3"}});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(Survivors, MinimumAboveTheNumberOfRanksIsRefused) {
  for (const Words& command : {training({"--ranks", "2", "--min-ranks", "3"}, "losses"),
                               Words{"run", "-n", "2", "--min-ranks", "3", "--", "true"}}) {
    const Result result = run(command);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("--min-ranks 3 exceeds the number of ranks, 2"));
  }
}

TEST_F(Survivors, TrainingEndsIfTooFewRanksAreLeft) {
  const Result result =
      run(training({"--ranks", "3", "--min-ranks", "3"}, "losses"), {{"TUTTI_FAULT", "kill:1:90"}});
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
}

TEST_F(Survivors, JobContinuesWithoutAKilledRank) {
  const std::string program = "if [ $RANK = 1 ]; then kill -9 $$; fi; echo rank $RANK is through";
  const Result two = run({"run", "-n", "3", "--min-ranks", "2", "--", "sh", "-c", program});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("rank 0 is through"), HasSubstr("rank 2 is through")));
  EXPECT_THAT(two.err,
              AllOf(HasSubstr("rank 1 ("), HasSubstr("killed by signal 9"),
                    AnyOf(HasSubstr("the others continue"), HasSubstr("the others had finished"))));
  const Result three = run({"run", "-n", "3", "--min-ranks", "3", "--", "sh", "-c", program});
  EXPECT_EQ(three.code, 137);
  EXPECT_THAT(three.err, Not(HasSubstr("continue")));
}

// Both training ranks die, and only the spare survives. It has no state of the run, so training
// continues from a checkpoint or fails without one.
TEST_F(Survivors, SparesAloneNeedACheckpoint) {
  const Words job_of = {"--ranks", "2", "--spares", "1", "--min-ranks", "1", "--steps", "2000"};
  const auto kill_both = [&](const Words& options, int64_t after) {
    std::filesystem::remove(path("losses"));
    Words more = job_of;
    more.insert(more.end(), options.begin(), options.end());
    Process job = start(training(more, "losses"));
    const Deadline deadline = Deadline::after(testing::kPatience);
    while (steps_in("losses") < after) EXPECT_FALSE(deadline.passed());
    for (const int rank : {0, 1}) EXPECT_EQ(::kill(process_of_rank(rank), SIGKILL), 0);
    return job.finish();
  };
  const Result lost = kill_both({}, 30);
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, HasSubstr("use --checkpoint"));
  const Result saved = kill_both({"--checkpoint", path("run"), "--checkpoint-every", "10"}, 30);
  EXPECT_EQ(saved.code, 0) << saved.err;
  EXPECT_THAT(saved.err, HasSubstr("1 of 3 ranks continue from the last checkpoint"));
  EXPECT_THAT(losses("losses"), SizeIs(2000));
}

TEST_F(Survivors, UnneededSparesAreNoFailure) {
  const Result result = run({"run", "-n", "2", "--spares", "2", "--no-prefix", "--", tutti(),
                             "bench", "all_reduce", "--max", "1K"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all_reduce"));
}

// Spares that only waited do not count as success, and the job is restarted.
TEST_F(Survivors, WaitingSparesAreNoSuccess) {
  const std::string program =
      cat("if [ $RANK -lt 2 ]; then ", tutti(), " bench all_reduce --max 1K; exit 9; fi; exec ",
          tutti(), " bench all_reduce --max 1K");
  const Result result =
      run({"run", "-n", "2", "--spares", "2", "--restarts", "1", "--", "sh", "-c", program});
  EXPECT_EQ(result.code, 9) << result.err;
  // The last active rank may fail before or after the end of the spares.
  EXPECT_THAT(result.err, AllOf(AnyOf(HasSubstr("all active ranks failed"), HasSubstr("rank 1 (")),
                                HasSubstr("restarting the job (restart 1 of 1)")));
  const Result diverged = run({"train", "--data", text_, "--ranks", "2", "--spares", "2", "--steps",
                               "30", "--lr", "1e6", "--optimizer", "sgd"});
  EXPECT_EQ(diverged.code, 1) << diverged.err;
  EXPECT_THAT(diverged.err, HasSubstr("not finite"));
}

// The ranks end one after the other: each rank waits for the launcher's notices that the ranks
// before it have ended.
TEST_F(Survivors, RanksThatLeftTooEarlyAreNoSuccess) {
  const std::string wait = "read -r -u $TUTTI_LAUNCHER_FD notice; ";
  const Result left = run({"run", "-n", "3", "--min-ranks", "1", "--", "bash", "-c",
                           "[ $RANK = 1 ] && exit 0; " + wait + "exit 7"});
  EXPECT_EQ(left.code, 7) << left.err;
  const Result through = run({"run", "-n", "3", "--min-ranks", "1", "--", "bash", "-c",
                              "[ $RANK != 2 ] && exit 0; " + wait + wait + "echo $notice; exit 7"});
  EXPECT_EQ(through.code, 0) << through.err;
  EXPECT_THAT(through.err, HasSubstr("the others had finished"));
  const Result last = run({"run", "-n", "3", "--min-ranks", "1", "--", "bash", "-c",
                           "[ $RANK != 2 ] && exit 7; " + wait + wait + "exit 0"});
  EXPECT_EQ(last.code, 0) << last.err;
}

TEST_F(Survivors, FailedJobIsRestarted) {
  const std::string program =
      "if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then exit 3; fi; echo well";
  const Result enough =
      run({"run", "-n", "2", "--restarts", "2", "--no-prefix", "--", "sh", "-c", program});
  EXPECT_EQ(enough.code, 0) << enough.err;
  EXPECT_EQ(enough.out, "well\nwell\n");
  EXPECT_THAT(enough.err, AllOf(HasSubstr("ended with exit code 3"), HasSubstr("restart 2 of 2")));
  EXPECT_EQ(run({"run", "-n", "2", "--restarts", "1", "--", "sh", "-c", program}).code, 3);
  const Result none = run({"run", "-n", "2", "--restarts", "3", "--", "/nonexistent"});
  EXPECT_EQ(none.code, 127);
  EXPECT_THAT(none.err, Not(HasSubstr("again")));
}

}  // namespace
}  // namespace tutti::tool
