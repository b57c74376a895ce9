// Tests that `tutti chaos` finds a command's defects, reproduces them, and reports nothing else.
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns a shell command that runs two ranks for half a second, and then `end`.
std::string two_ranks(const std::string& end) {
  return "RANK=0 sleep 0.5 & zero=$!; RANK=1 sleep 0.5 & one=$!; "
         "wait $zero; zero=$?; wait $one; one=$?; " +
         end;
}

class Chaos : public Cli {
 protected:
  Result chaos(const Words& options, const Words& command,
               Process::Environment environment = {}) const {
    Words words = {"chaos"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return run(words, std::move(environment));
  }
  Result hurt(const std::string& faults, const std::string& end) const {
    return chaos({"--plan", write("plan", cat(R"({"trials":[{"faults":[)", faults, "]}]}")),
                  "--within", "3", "--json", path("json")},
                 {"sh", "-c", two_ranks(end)});
  }
  // Returns the failures of the last hurt().
  Json failures() const { return Json::parse(read(path("json")))["failures"]; }

  // The command exits with 1 and names the killed rank, or with 0 if none was killed.
  const std::string honest_ =
      "[ $zero = 0 ] && [ $one = 0 ] && exit 0; "
      "[ $zero = 0 ] || echo 'rank 0 (here, pid 7) died'; "
      "[ $one = 0 ] || echo 'rank 1 (here, pid 8) died'; "
      "exit 1";
  const std::string kill_one_ = R"({"kind":"kill","rank":1,"at_ms":50})";
};

TEST_F(Chaos, FindsNothingInACorrectCommand) {
  const std::string faults = cat(kill_one_, R"(,{"kind":"pause","rank":0,"at_ms":10,"for_ms":50})");
  const Result result = hurt(faults, honest_);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("planned +1 +0 +0 +1 +0 +0 +0 +1/1 "));
  EXPECT_THAT(failures(), SizeIs(0));
}

TEST_F(Chaos, FindsHangs) {
  const Result result = hurt(kill_one_, "[ $one = 0 ] || sleep 100");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("hung for"), HasSubstr("kill of rank 1 after 50 ms")));
}

TEST_F(Chaos, FindsProcessesThatAreLeftBehind) {
  const Result result = hurt(
      kill_one_, cat("[ $one = 0 ] || setsid sleep 98 < /dev/null > /dev/null 2>&1 & ", honest_));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, ContainsRegex("left behind: process [0-9]+ \\(sleep 98\\)"));
}

TEST_F(Chaos, FindsAFileInSharedMemory) {
  const std::string file = cat("/dev/shm/", mark());
  const Result result = hurt(kill_one_, cat("[ $one = 0 ] || : > ", file, "; ", honest_));
  EXPECT_TRUE(std::filesystem::remove(file));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr(cat("left behind: ", file)));
}

TEST_F(Chaos, FindsErrorsThatNameNoRank) {
  const Result result = hurt(kill_one_, "[ $one = 0 ] || echo something is wrong with rank 11");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("rank 1 was not named"));
}

// The killed rank's own lines, and a launcher's line about the first rank to end, do not count as
// naming the killed rank.
TEST_F(Chaos, FindsRanksThatAreNamedByChance) {
  const Result result = hurt(
      kill_one_,
      "[ $one = 0 ] || { echo 'tutti [rank 1] warning: communicator aborted on rank 1 (a, pid 8)'; "
      "echo '[1] tutti [rank 1] warning: communicator aborted on rank 1 (a, pid 8)'; "
      "echo '[1] rank 1 (a, pid 8) is well'; echo 'the last lines of rank 1 were'; "
      "echo 'tutti: rank 1 (a, pid 8) ended with exit code 1'; } >&2");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("rank 1 was not named"));
}

TEST_F(Chaos, AcceptsAnErrorBetweenTwoRanksFromEither) {
  const Result result =
      hurt(kill_one_,
           "[ $one = 0 ] || { echo '[1] tutti [rank 1] warning: rank 1 (a, pid 8) sent 4 bytes "
           "where rank 0 (a, pid 7) expected 8' >&2; exit 1; }");
  EXPECT_EQ(result.code, 0) << result.out;
}

// Before the rendezvous, ranks have only each other's addresses, not their ranks.
TEST_F(Chaos, AcceptsAnAddressAsAName) {
  const Result result = hurt(
      kill_one_, "[ $one = 0 ] || { echo 'rank 1 at 10.0.0.1:4711 said nothing' >&2; exit 1; }");
  EXPECT_EQ(result.code, 0) << result.out;
}

// The pause exceeds this command's timeout.
TEST_F(Chaos, FindsCommandsThatFailInAShortPause) {
  const std::string impatient =
      "RANK=0 sleep 0.5 & RANK=1 timeout --foreground 2 sleep 1 & wait $!";
  const Result result = chaos(
      {"--plan",
       write("plan",
             R"({"trials":[{"faults":[{"kind":"pause","rank":1,"at_ms":10,"for_ms":2500}]}]})")},
      {"sh", "-c", impatient});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("did not survive: exit code 124"));
}

TEST_F(Chaos, RequiresACommandThatSucceedsWithoutFaults) {
  const Result result = hurt(kill_one_, "exit 3");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("the command fails without faults, with exit code 3"));
}

TEST_F(Chaos, FindsADifferentResult) {
  const std::string end =
      "echo 'rank 1 (here, pid 8)'; [ $one = 0 ] && echo sum 1.00 || echo sum 1.02";
  const auto differs = [&](const std::string& tolerance) {
    return chaos({"--plan", write("plan", cat(R"({"trials":[{"faults":[)", kill_one_, "]}]}")),
                  "--same-output", "sum +[0-9.]+", "--tolerance", tolerance},
                 {"sh", "-c", two_ranks(end)});
  };
  const Result result = differs("0.001");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("wrong: 'sum 1.02' instead of 'sum 1.00'"));
  EXPECT_EQ(differs("0.05").code, 0);
}

TEST_F(Chaos, ReproducesItsTrials) {
  const Result first = hurt(kill_one_, "true");
  ASSERT_EQ(first.code, 1);
  ASSERT_THAT(failures(), SizeIs(1));
  const std::string plan = failures()[0]["plan"].dump();
  const Result second = chaos({"--plan", write("again", plan), "--json", path("second")},
                              {"sh", "-c", two_ranks("true")});
  EXPECT_EQ(second.code, 1);
  const Json again = Json::parse(read(path("second")))["failures"];
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0]["problems"], failures()[0]["problems"]);
  EXPECT_EQ(again[0]["plan"], failures()[0]["plan"]);
}

TEST_F(Chaos, DrawsTheSamePlansFromASeed) {
  const auto draw = [&](const std::string& seed, const std::string& file) {
    chaos({"--seed", seed, "--trials", "8", "--faults", "kill,two,again,pause", "--span", "100",
           "--write-plan", path(file)},
          {"sh", "-c", two_ranks(honest_)});
    return read(path(file));
  };
  const std::string seven = draw("7", "seven");
  EXPECT_THAT(Json::parse(seven)["trials"], SizeIs(8));
  EXPECT_EQ(draw("7", "seven_again"), seven);
  EXPECT_NE(draw("8", "eight"), seven);
}

// The plans are refused before the command runs. The command would leave a file.
TEST_F(Chaos, RefusesInvalidPlans) {
  const Words command = {"sh", "-c", cat(": > ", path("ran"), "; ", two_ranks(honest_))};
  const auto refuse = [&](const std::string& plan, const std::string& why) {
    const Result result = chaos({"--plan", write("bad_plan", plan)}, command);
    EXPECT_EQ(result.code, 1) << plan;
    EXPECT_THAT(result.err, AllOf(HasSubstr(why), HasSubstr("bad_plan"))) << plan;
    EXPECT_FALSE(std::filesystem::exists(path("ran"))) << plan;
  };
  const auto refuse_fault = [&](const std::string& fault, const std::string& why) {
    refuse(cat(R"({"trials":[{"faults":[)", fault, "]}]}"), why);
  };
  refuse_fault(R"({"kind":"insult","rank":1})", "'insult'");
  refuse_fault(R"({"kind":"stall","rank":1,"at_ms":5})", "`message` for stall");
  refuse_fault(R"({"kind":"kill","rank":1,"at_ms":5,"message":7})", "both `message` and `at_ms`");
  refuse_fault(R"({"kind":"kill","rank":1,"at":5})", "unknown member 'at'");
  refuse_fault(R"({"kind":"kill","rank":-1,"at_ms":5})", "`rank`");
  refuse_fault(R"({"kind":"kill","rank":1,"message":0})", "at least 1");
  refuse_fault(R"({"kind":"pause","rank":1,"at_ms":5})", "for_ms");
  refuse(R"({"trials":[]})", "no trials");
  refuse(R"({"trials":[{"faults":[]}]})", "without faults");
  refuse(R"({"trials":[{"fault":[]}]})", "unknown member 'fault'");
  refuse("{", "bad_plan");
}

TEST_F(Chaos, RefusesImpossibleTrialsFirst) {
  const Words command = {"sh", "-c", cat(": > ", path("ran"), "; ", two_ranks(honest_))};
  const std::vector<Words> mistakes = {
      {"--ranks=-1"},        {"--ranks", "1-"},
      {"--ranks", "2-1"},    {"--ranks", "99999999999"},
      {"--faults", "cut"},   {"--same-output", "("},
      {"--plan", "no/plan"}, {"--write-plan", path("no/folder/plan")},
  };
  for (const Words& mistake : mistakes) {
    const Result result = chaos(mistake, command);
    EXPECT_THAT(result.code, ::testing::AnyOf(1, 2)) << mistake.back();
    EXPECT_FALSE(std::filesystem::exists(path("ran"))) << mistake.back();
  }
  EXPECT_THAT(chaos({"--ranks", "1-2"}, command).err, HasSubstr("last rank is 1"));
  EXPECT_THAT(chaos({}, {"true"}).err, HasSubstr("no ranks"));
}

TEST_F(Chaos, FailsIfNothingWasTested) {
  const Result result = hurt(R"({"kind":"kill","rank":7,"at_ms":5})", honest_);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("nothing was tested"));
}

// The signal arrives in the second trial, which would not end by itself.
TEST_F(Chaos, ReportsItsFindingsWhenItIsStopped) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    std::filesystem::remove(path("count"));
    const std::string command =
        cat("echo x >> ", path("count"), "; ",
            two_ranks(cat("[ $(grep -c x ", path("count"), ") = 3 ] && kill -", signal,
                          " $PPID && sleep 100; ", honest_)));
    const std::string trial = cat(R"({"faults":[)", kill_one_, "]}");
    const Result result =
        chaos({"--plan", write("plan", cat(R"({"trials":[)", trial, ",", trial, "]}")), "--json",
               path("json")},
              {"sh", "-c", command});
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.out, ContainsRegex("all +1 "));
    EXPECT_THAT(result.err, HasSubstr("after 1 trials"));
    EXPECT_THAT(failures(), SizeIs(0));
  }
}

TEST_F(Chaos, PassesABench) {
  const Result result =
      chaos({"--faults", "kill,two,pause,delay,truncate,launcher", "--trials", "6"},
            {tutti(), "bench", "all_reduce", "-n", "3", "--max", "64K"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("launcher +1 "));
}

// The second run shows that the fault is effective: without the check, values are wrong.
TEST_F(Chaos, PassesABenchWithSwappedWords) {
  const Words bench = {tutti(), "bench", "all_reduce", "-n",          "2",  "--min",
                       "64K",   "--max", "64K",        "--transport", "tcp"};
  const Words trials = {"--faults", "swap", "--trials", "3", "--messages", "5"};
  const Result checked = chaos(trials, bench);
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, ContainsRegex("swap +3 "));
  const Result unchecked = chaos(trials, bench, {{"TUTTI_INTEGRITY", "off"}});
  EXPECT_EQ(unchecked.code, 1) << unchecked.out << unchecked.err;
}

// The abort may also strike during a split. A rank that waits for the aborting rank receives the
// abort at once.
TEST_F(Chaos, PassesSplitsThatAreAborted) {
  const std::string splits = std::filesystem::absolute("tests/tools/cli/splits");
  const Result result = chaos({"--faults", "abort", "--trials", "8", "--messages", "200"},
                              {tutti(), "run", "-n", "3", "--", splits, "100"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  // A trial succeeds if the aborted part's ranks already have all data that they need. The number
  // of such trials depends on timing. No trial hangs, gives a wrong result or leaks.
  EXPECT_THAT(result.out, ContainsRegex("abort +8 +0 +[0-4] +[4-8] +0 +0 +0 "));
}

// Faults at messages strike only after the rendezvous. From then on, the training survives deaths.
TEST_F(Chaos, PassesATraining) {
  const std::string plan = R"({"trials":[
      {"faults":[{"kind":"kill","rank":0,"message":40}]},
      {"faults":[{"kind":"kill","rank":1,"message":60},{"kind":"kill","rank":3,"message":80}]},
      {"faults":[{"kind":"delay","rank":2,"message":50,"for_ms":200}]},
      {"faults":[{"kind":"pause","rank":2,"at_ms":50,"for_ms":200}]}]})";
  const Result result = chaos({"--plan", write("plan", plan), "--survives", "--same-output",
                               "validation loss +[0-9.]+", "--tolerance", "0.001"},
                              {tutti(), "train", "--data", write_text(), "--ranks", "4",
                               "--min-ranks", "1", "--steps", "30", "--hidden", "32"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("all +4 "));
}

// Sets the clock back by ten hours, permanently. A command that uses the wall clock is detected;
// Tutti does not use it.
TEST_F(Chaos, MovesTheClock) {
  const std::string plan =
      write("plan", R"({"trials":[{"faults":[{"kind":"clock","at_ms":20,"shift_s":-36000}]}]})");
  const Result goes_by_it =
      chaos({"--plan", plan, "--same-output", "took -?[0-9]+"},
            {"sh", "-c", "start=$(date +%s); RANK=0 sleep 1; echo took $(($(date +%s) - start))"});
  if (goes_by_it.err.find("libfaketime") != std::string::npos) GTEST_SKIP() << goes_by_it.err;
  EXPECT_EQ(goes_by_it.code, 1);
  EXPECT_THAT(goes_by_it.out, ContainsRegex("wrong: 'took -3(59[0-9][0-9]|6000)' instead of"));
  const Result bench = chaos({"--plan", plan}, {tutti(), "bench", "all_reduce", "-n", "3"});
  EXPECT_EQ(bench.code, 0) << bench.out << bench.err;
  EXPECT_THAT(bench.out, ContainsRegex("planned +1 "));
}

// Skipped where mounting is not permitted.
TEST_F(Chaos, FillsADisk) {
  const std::string plan =
      write("plan", R"({"trials":[{"faults":[{"kind":"full","bytes":8192}]}]})");
  const std::string write_file =
      "head -c 100000 /dev/zero > {dir}/file && echo well; RANK=0 sleep 0.1";
  const Result result = chaos({"--plan", plan, "--same-output", "well", "--json", path("json")},
                              {"sh", "-c", write_file});
  if (result.err.find("as root") != std::string::npos) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(failures()[0]["err"].get<std::string>(), HasSubstr("No space left on device"));
  EXPECT_THAT(result.out, HasSubstr("wrong: 'nothing' instead of 'well'"));
}

}  // namespace
}  // namespace tutti::tool
