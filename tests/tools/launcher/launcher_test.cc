// Tests ranks on this host that end by themselves.
#include "tools/launcher/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/text.h"
#include "tests/tools/launcher/start.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Waits until another rank ends, and prints the launcher's notice.
const std::string kReadNotice = "read -r -u $TUTTI_LAUNCHER_FD notice; echo \"$notice\"; ";

// Matches the same line of ranks 0 and 1, merged if both printed it within the launcher's window.
auto FromBothRanks(const std::string& line) {
  return ::testing::AnyOf(cat("[0,1] ", line, '\n'), cat("[0] ", line, "\n[1] ", line, '\n'),
                          cat("[1] ", line, "\n[0] ", line, '\n'));
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  return lines.empty() ? "" : lines.back();
}

TEST(Launcher, RunsAnyProgram) {
  const Result result = start_launcher(2, "-", {"echo", "hi"}).finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, FromBothRanks("hi"));
  EXPECT_EQ(result.err, "");
}

TEST(Launcher, GivesRanksTheirPlaceInTheJob) {
  const Result result = launch_script(
      3,
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR;"
      "[ ${#TUTTI_TOKEN} = 32 ] && [ $MASTER_PORT -gt 0 ] && echo good $RANK;"
      "[ -z \"$TUTTI_LISTEN_FD\" ] || echo listens $RANK $(readlink /proc/$$/fd/$TUTTI_LISTEN_FD)",
      {{"TUTTI_LISTEN_FD", "77"}});
  EXPECT_EQ(result.code, 0);
  for (const char* line :
       {"[0] 0 3 0 3 127.0.0.1\n", "[1] 1 3 1 3 127.0.0.1\n", "[2] 2 3 2 3 127.0.0.1\n",
        "[0] good 0\n", "[1] good 1\n", "[2] good 2\n", "[0] listens 0 socket:"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("listens 1")));
}

TEST(Launcher, ThePortIsRankZerosListeningSocket) {
  const Result result = launch_script(
      2,
      "if [ $RANK = 1 ]; then exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && echo connected;"
      "else read -r -u $TUTTI_LAUNCHER_FD notice; fi");
  EXPECT_EQ(last_line(result.out), "[1] connected") << result.out << result.err;
}

TEST(Launcher, KeepsTheUsersTokenAndThreads) {
  const Result result =
      launch_script(1, "echo $TUTTI_TOKEN $OMP_NUM_THREADS",
                    {{"TUTTI_TOKEN", "a token that is mine"}, {"OMP_NUM_THREADS", "7"}});
  EXPECT_EQ(result.out, "[0] a token that is mine 7\n");
}

TEST(Launcher, BindsRanksToDisjointCoresUnlessDisabled) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const std::string script = "taskset -cp $$ | sed 's/.*: //'";
  const Result unbound = launch_script(1, script, {{"TUTTI_BIND", "none"}});
  const std::string everything = unbound.out;
  const Result crowd = launch_script(CPU_COUNT(&allowed) + 1, script);
  EXPECT_THAT(crowd.out, EndsWith(everything.substr(3))) << "more ranks than cores: not bound";
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "one core only";
  const Result bound = launch_script(2, script);
  const std::vector<std::string> lines = split(bound.out, '\n');
  ASSERT_EQ(lines.size(), 2u) << bound.out;
  EXPECT_NE(lines[0].substr(4), lines[1].substr(4));
}

TEST(Launcher, GivesRanksTheirDomains) {
  const std::string script = "echo $RANK at $TUTTI_DOMAIN.";
  const Process::Environment environment = {
      {"TUTTI_TOPOLOGY", "synthetic:package:2 [numa] l3:2 core:1 pu:1"},
      {"TUTTI_DOMAIN", "numa:7"}};
  EXPECT_THAT(launch_script(4, script, environment).out,
              AllOf(HasSubstr("] 0 at numa:0,cache:0.\n"), HasSubstr("] 1 at numa:0,cache:1.\n"),
                    HasSubstr("] 2 at numa:1,cache:2.\n"), HasSubstr("] 3 at numa:1,cache:3.\n")));
  EXPECT_THAT(launch_script(2, script, environment).out, HasSubstr("] 1 at numa:1.\n"));
  EXPECT_THAT(launch_script(5, script, environment).out, HasSubstr("] 4 at .\n"));
}

TEST(Launcher, BindsNoRankToTheCoresOfAnotherHost) {
  const std::string script = "taskset -cp $$ | sed 's/.*: //'";
  const std::string unbound = launch_script(1, script, {{"TUTTI_BIND", "none"}}).out;
  const std::string here = unbound.substr(unbound.find(' '));
  const Result result =
      launch_script(2, script, {{"TUTTI_TOPOLOGY", "synthetic:package:2 core:1 pu:1"}});
  for (const std::string& line : split(result.out, '\n')) EXPECT_THAT(line + '\n', EndsWith(here));
}

TEST(Launcher, MoreRanksThanCoresWork) {
  const Result result = launch_script(16, "echo rank $RANK threads $OMP_NUM_THREADS");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 16);
  EXPECT_THAT(result.out, HasSubstr("[15] rank 15 threads "));
}

TEST(Launcher, EachRanksLinesStayInOrder) {
  const Result result = launch_script(2, "for ((i = 0; i < 3000; ++i)); do echo $i; done");
  EXPECT_EQ(result.code, 0);
  for (const char rank : {'0', '1'}) {
    int next = 0;
    for (const std::string& line : split(result.out, '\n')) {
      const size_t close = line.find("] ");
      ASSERT_NE(close, std::string::npos) << line;
      if (line.substr(0, close).find(rank) == std::string::npos) continue;
      ASSERT_EQ(line.substr(close + 2), std::to_string(next++));
    }
    EXPECT_EQ(next, 3000);
  }
}

TEST(Launcher, ReturnsTheExitCodeOfTheFailedRankAndShowsItsErrorOnce) {
  const Result result = launch_script(3, "if [ $RANK = 1 ]; then echo the cause >&2; exit 3; fi; " +
                                             kReadNotice + "echo the consequence >&2; exit 5");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, ContainsRegex("exit 1 [0-9]+ 3"));
  EXPECT_THAT(result.err, HasSubstr("the consequence"));
  EXPECT_THAT(result.err, ContainsRegex("\ntutti run: rank 1 \\(.+, pid [0-9]+\\) ended with exit "
                                        "code 3\n$"));
  EXPECT_EQ(result.err.find("the cause"), result.err.rfind("the cause")) << "it is still seen";
}

// A rank that exits with 0 while other ranks need it does not count as failed, but is named.
TEST(Launcher, NamesRanksThatHadEndedBefore) {
  const Result result = launch_script(
      4, "[ $RANK = 0 ] || exit 0; " + kReadNotice + kReadNotice + kReadNotice + "exit 3");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(last_line(result.err),
              AllOf(HasSubstr("rank 0 ("),
                    EndsWith("code 3; ranks 1-3 had ended before, with exit code 0")));
}

TEST(Launcher, ReportsHowARankWasKilled) {
  const Result result =
      launch_script(3, "if [ $RANK = 2 ]; then kill -9 $$; fi; " + kReadNotice + "exit 1");
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.out, ContainsRegex("signal 2 [0-9]+ 9\n"));
  EXPECT_THAT(last_line(result.err),
              AllOf(HasSubstr("rank 2 ("), EndsWith("was killed by signal 9 (Killed)")));
}

// The other ranks fail because of ranks 2 and 0, and are not reported.
TEST(Launcher, ReportsAllRanksThatWereKilled) {
  const Result result = launch_script(4, "[ $RANK = 2 ] && kill -9 $$; " + kReadNotice +
                                             "[ $RANK = 0 ] && kill -11 $$; " + kReadNotice +
                                             "[ $RANK = 1 ] && kill -ABRT $$; exit 1");
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err,
              ContainsRegex("tutti run: rank 2 \\([^)]*\\) was killed by signal 9 \\(Killed\\)\n"
                            "tutti run: rank 0 \\([^)]*\\) was killed by signal 11 "
                            "\\(Segmentation fault\\)\n$"));
  EXPECT_THAT(result.err, Not(HasSubstr("tutti run: rank 1")));
  EXPECT_THAT(result.err, Not(HasSubstr("tutti run: rank 3")));
}

TEST(Launcher, FinishedRankIsNoFailure) {
  const Result result =
      launch_script(2, "if [ $RANK = 1 ]; then exit 0; fi; " + kReadNotice + "exit 0");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, ContainsRegex("^\\[0\\] exit 1 [0-9]+ 0\n$"));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST(Launcher, MissingProgramIsOneClearError) {
  const Result missing = start_launcher(4, "-", {"no-such-program"}).finish();
  EXPECT_EQ(missing.code, 127);
  EXPECT_THAT(missing.err, HasSubstr("cannot run 'no-such-program'"));
  EXPECT_THAT(missing.err, HasSubstr("remedy: "));
  EXPECT_EQ(std::ranges::count(missing.err, '\n'), 1);

  const Result directory = start_launcher(1, "-", {"/"}).finish();
  EXPECT_EQ(directory.code, 126);
  EXPECT_THAT(directory.err, HasSubstr("cannot run '/'"));
}

TEST(Launcher, ProgramForAnotherProcessorIsOneClearError) {
  const std::string path = ::testing::TempDir() + cat("foreign", ::getpid());
  std::string program(200, '\0');  // an ELF header of 64 bits, for processor 0xfeed
  program.replace(0, 20, std::string("\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\xed\xfe", 20));
  std::ofstream(path) << program;
  ::chmod(path.c_str(), 0700);
  const Result result = start_launcher(2, "-", {path}).finish();
  ::unlink(path.c_str());
  EXPECT_EQ(result.code, 126);
  EXPECT_THAT(result.err, HasSubstr(cat("cannot run '", path, "': Exec format error")));
  EXPECT_THAT(result.err, HasSubstr("another processor"));
}

// A script without a shebang line is run by sh, as in any shell.
TEST(Launcher, ScriptNeedsNoShebang) {
  const std::string path = ::testing::TempDir() + cat("script", ::getpid());
  std::ofstream(path) << "echo it runs\n";
  ::chmod(path.c_str(), 0700);
  const Result result = start_launcher(1, "-", {path}).finish();
  ::unlink(path.c_str());
  EXPECT_EQ(result.out, "[0] it runs\n") << result.err;
}

TEST(Launcher, LostOutputIsAFailure) {
  Process launcher(
      {"bash", "-c", "\"$@\" > /dev/full", "-", launcher_path(), "2", "-", "1", "echo"});
  const Result result = launcher.finish();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output: No space left on device"));
}

TEST(Launcher, ClosedStreamsAreNotReplacedByOtherFiles) {
  Process launcher({"bash", "-c", "\"$@\" 2> >(cat) <&- >&-", "-", launcher_path(), "2", "-", "1",
                    "bash", "-c", "read -r line; echo read $? >&2; echo unseen"});
  const Result result = launcher.finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, FromBothRanks("read 1"));
}

class TokenFile : public ::testing::Test {
 protected:
  TokenFile() : path_(::testing::TempDir() + cat("token", ::getpid())) {}
  ~TokenFile() override { ::unlink(path_.c_str()); }

  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  Result launch() const {
    return launch_script(2, "echo $TUTTI_TOKEN", {{"TUTTI_TOKEN_FILE", path_}});
  }
  void expect_refusal(const std::string& why) const {
    const Result result = launch();
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(cat("TUTTI_TOKEN_FILE=", path_)), HasSubstr(why)));
    EXPECT_EQ(result.out, "");
  }

  const std::string path_;
};

TEST_F(TokenFile, LauncherReadsTheFileForTheRanks) {
  write("a secret of the job\n");
  EXPECT_THAT(launch().out, FromBothRanks("a secret of the job"));
}

TEST_F(TokenFile, UnusableFileIsNamed) {
  expect_refusal("No such file or directory");
  write("\n");
  expect_refusal("the file is empty");
  write(std::string(1 << 20, 'x'));
  expect_refusal("more than 4096 bytes");
  write("secret", 0644);
  expect_refusal("has mode 0644");
  ::unlink(path_.c_str());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refusal("the file is not a regular file");
}

TEST(Launcher, InvalidOptionsAreRefused) {
  EXPECT_THAT(start_launcher(0, "-", {"true"}).finish().err, HasSubstr("0 ranks"));
  EXPECT_THAT(start_launcher(1, "a,b", {"true"}).finish().err, HasSubstr("2 hosts are too many"));
  EXPECT_THAT(start_launcher(1, "-", {}).finish().err, HasSubstr("no program"));
  EXPECT_THAT(start_launcher(1, "-oProxyCommand=sh", {"true"}).finish().err,
              HasSubstr("'-oProxyCommand=sh' is not a host name"));
}

TEST(Launcher, FirstRankReadsTheStandardInput) {
  const Result result =
      Process({"bash", "-c",
               cat("echo hello | ", launcher_path(), " 2 - 1 bash -c 'cat; echo end of $RANK'")})
          .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[0] hello\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("[1] hello")));
  EXPECT_THAT(result.out, HasSubstr("[1] end of 1\n"));
}

}  // namespace
}  // namespace tutti::tool
