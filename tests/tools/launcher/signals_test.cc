// Tests ranks that must be terminated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/tools/launcher/start.h"

namespace tutti::tool {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Waits for signals forever.
const std::string kWait = "while true; do sleep 1000 & wait; done";

// "[0] 12 34" -> {12, 34}
std::vector<pid_t> pids_in(const std::string& line) {
  std::vector<pid_t> pids;
  for (const std::string& word : split(line.substr(line.find(']') + 1), ' ')) {
    pids.push_back(std::stoi(word));
  }
  return pids;
}

std::vector<Watched> watch_all(const std::vector<std::string>& lines) {
  std::vector<Watched> watched;
  for (const std::string& line : lines) {
    for (pid_t pid : pids_in(line)) watched.emplace_back(pid);
  }
  return watched;
}

TEST(Signals, InterruptReachesTheRanks) {
  Process launcher = start_launcher(
      2, "-", {"bash", "-c", "trap 'echo cleaned $RANK; exit 0' INT; echo $RANK; " + kWait});
  launcher.read_lines(2);
  ::kill(launcher.pid(), SIGINT);
  const Result result = launcher.finish();
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_THAT(result.out, HasSubstr("[0] cleaned 0\n"));
  EXPECT_THAT(result.out, HasSubstr("[1] cleaned 1\n"));
  EXPECT_THAT(result.err, EndsWith("ended by signal 2 (Interrupt)\n"));
}

TEST(Signals, SecondInterruptKills) {
  Process launcher =
      start_launcher(2, "-", {"bash", "-c", "trap 'echo stays $RANK' INT TERM; echo $$; " + kWait});
  const std::vector<Watched> ranks = watch_all(launcher.read_lines(2));
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(launcher.pid(), SIGINT);
  launcher.read_lines(4);
  for (const Watched& rank : ranks) EXPECT_TRUE(rank.alive());
  ::kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.finish().code, 128 + SIGINT);
  for (const Watched& rank : ranks) EXPECT_FALSE(rank.alive());
}

TEST(Signals, UserSignalsPassAndEndNothing) {
  Process launcher =
      start_launcher(1, "-", {"bash", "-c", "trap 'echo got it; exit 0' USR1; echo 1; " + kWait});
  launcher.read_lines(1);
  ::kill(launcher.pid(), SIGUSR1);
  const Result result = launcher.finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "[0] 1\n[0] got it\n");
}

// Returns the process state: "T" is stopped; "S" and "R" are alive.
char state_of(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t end = text.rfind(')');
  return end == std::string::npos ? 'X' : text[end + 2];
}

bool comes_to_be_stopped(pid_t pid, bool stopped) {
  const Deadline deadline = Deadline::after(testing::kPatience);
  while ((state_of(pid) == 'T') != stopped && !deadline.passed()) std::this_thread::yield();
  return (state_of(pid) == 'T') == stopped;
}

// Sends the signals of Ctrl-Z and of a shell's fg.
TEST(Signals, RanksStopWithTheLauncher) {
  Process launcher =
      start_launcher(2, "-", {"bash", "-c", "trap 'exit 0' USR1; echo $$; " + kWait});
  const std::vector<std::string> lines = launcher.read_lines(2);
  ASSERT_EQ(lines.size(), 2u);
  ::kill(launcher.pid(), SIGTSTP);
  for (const bool stopped : {true, false}) {
    EXPECT_TRUE(comes_to_be_stopped(launcher.pid(), stopped));
    for (const std::string& line : lines) {
      EXPECT_TRUE(comes_to_be_stopped(pids_in(line)[0], stopped));
    }
    ::kill(launcher.pid(), SIGCONT);
  }
  ::kill(launcher.pid(), SIGUSR1);
  EXPECT_EQ(launcher.finish().code, 0);
}

TEST(Signals, RankKilledFromOutsideEndsTheOthers) {
  Process launcher =
      start_launcher(3, "-", {"bash", "-c", "trap '' TERM; sleep 1000 & echo $$ $!; wait"});
  const std::vector<std::string> lines = launcher.read_lines(3);
  const std::vector<Watched> processes = watch_all(lines);
  ASSERT_EQ(processes.size(), 6u);
  ::kill(pids_in(lines[1])[0], SIGKILL);
  const Result result = launcher.finish();
  EXPECT_EQ(result.code, 137);
  const std::string rank = lines[1].substr(1, 1);
  EXPECT_THAT(result.err, HasSubstr("rank " + rank + " ("));
  EXPECT_THAT(result.err, EndsWith("was killed by signal 9 (Killed)\n"));
  // the launcher does not wait for the end of a group
  for (const Watched& process : processes) process.wait_for_end();
}

TEST(Signals, StoppedRankIsEndedIfItIsTheOnlyOneLeft) {
  const Result result =
      launch_script(3, "[ $RANK != 1 ] || kill -STOP $$", {{"TUTTI_TIMEOUT", "0.3"}});
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("rank 1 ("));
  EXPECT_THAT(result.err, HasSubstr("it was stopped for 0.3 s after all others had ended"));
}

TEST(Signals, LeftoverProcessesAreEnded) {
  Process launcher = start_launcher(1, "-", {"bash", "-c", "sleep 1000 & echo $!"});
  const std::vector<Watched> left = watch_all(launcher.read_lines(1));
  EXPECT_EQ(launcher.finish().code, 0);
  left.at(0).wait_for_end();
}

TEST(Signals, NothingOutlivesALauncherThatIsKilled) {
  Process launcher = start_launcher(2, "-", {"bash", "-c", "sleep 1000 & echo $$ $!; wait"});
  const std::vector<Watched> processes = watch_all(launcher.read_lines(2));
  ASSERT_EQ(processes.size(), 4u);
  for (const Watched& process : processes) EXPECT_TRUE(process.alive());
  ::kill(launcher.pid(), SIGKILL);
  for (const Watched& process : processes) process.wait_for_end();
  EXPECT_EQ(launcher.finish().code, 137);
}

}  // namespace
}  // namespace tutti::tool
