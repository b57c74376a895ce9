// Tests jobs on several hosts, all of which are this host: the remote shell is a script that
// ignores the host name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tests/tools/launcher/start.h"
#include "tools/launcher/address.h"

namespace tutti::tool {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Hosts : public ::testing::Test {
 protected:
  Hosts() : shell_(::testing::TempDir() + "rsh" + std::to_string(::getpid())) {
    std::ofstream(shell_) << "#!/bin/sh\n[ \"$1\" = down ] && exit 255\n"
                             "[ \"$1\" = mute ] && exec sleep 1000\n"
                             "[ \"$1\" = titled ] && printf '\\033]0;title\\007'\n"
                             "shift\nexec \"$@\"\n";
    ::chmod(shell_.c_str(), 0700);
  }
  ~Hosts() override { ::unlink(shell_.c_str()); }

  Process start(int ranks, const std::string& hosts, const std::string& script,
                Process::Environment environment = {}) {
    // Uses loopback, so that the test runs on a machine without a network.
    environment.emplace("TUTTI_RSH", "env HOPS=1 " + shell_);
    environment.emplace("TUTTI_INTERFACE", "lo");
    return start_launcher(ranks, hosts, {"bash", "-c", script}, std::move(environment));
  }

  std::string shell_;
};

TEST_F(Hosts, RanksAreAssignedInBlocks) {
  const Result result =
      start(5, "a,b", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $HOPS").finish();
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* line : {"[0] 0/5 0/3 1\n", "[1] 1/5 1/3 1\n", "[2] 2/5 2/3 1\n",
                           "[3] 3/5 0/2 1\n", "[4] 4/5 1/2 1\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST_F(Hosts, EachHostGivesItsRanksTheirDomains) {
  const Result result = start(4, "a,b", "echo $RANK at $TUTTI_DOMAIN",
                              {{"TUTTI_TOPOLOGY", "synthetic:package:2 [numa] core:1 pu:1"}})
                            .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* line :
       {"] 0 at numa:0\n", "] 1 at numa:1\n", "] 2 at numa:0\n", "] 3 at numa:1\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST_F(Hosts, RanksReachTheSocketOfRankZero) {
  const Result result =
      start(2, "a,b",
            "if [ $RANK = 1 ]; then exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && echo connected;"
            "else readlink /proc/$$/fd/$TUTTI_LISTEN_FD; read -r -u $TUTTI_LAUNCHER_FD notice; fi")
          .finish();
  EXPECT_THAT(result.out, HasSubstr("[1] connected\n")) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[0] socket:"));
}

// A window title without a newline is not part of the agent's output.
TEST_F(Hosts, LoginFileMayPrintAnything) {
  const Result result = start(2, "titled,b", "echo rank $RANK").finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[0] rank 0\n"));
  EXPECT_THAT(result.err, HasSubstr("[titled] \\x1b]0;title\\x07\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("ready")));
}

TEST_F(Hosts, HostThatDoesNotAnswerIsGivenUp) {
  const Result result =
      start(2, "mute,b", "echo rank $RANK", {{"TUTTI_INIT_TIMEOUT", "1"}}).finish();
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("TUTTI_INIT_TIMEOUT"));
}

TEST_F(Hosts, SlowAnswerIsReported) {
  const Result result =
      start(2, "mute,b", "echo rank $RANK", {{"TUTTI_INIT_TIMEOUT", "6"}}).finish();
  EXPECT_THAT(result.err, HasSubstr("tutti run: mute: `"));
  EXPECT_THAT(result.err, HasSubstr("has not started the agent for 5 s"));
}

TEST_F(Hosts, ThisHostNeedsNoRemoteShell) {
  const Result result =
      start(2, "localhost:2", "echo rank $RANK of $TUTTI_HOST", {{"TUTTI_RSH", "/bin/false"}})
          .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[1] rank 1 of localhost\n"));
}

// Rank 1 kills the agent of host b, which cannot report the rank's end. Rank 0 ends afterwards.
TEST_F(Hosts, OtherHostsContinueWithoutALostHost) {
  const std::string file = shell_ + ".agent";
  const Result result =
      start(2, "a,b",
            cat("if [ $RANK = 1 ]; then echo $PPID > ", file, ".new; mv ", file, ".new ", file,
                "; kill -9 $PPID; exec sleep 100; fi; until [ -e ", file,
                " ]; do :; done; while kill -0 $(cat ", file, ") 2> /dev/null; do :; done"),
            {{"LAUNCHER_MIN_RANKS", "1"}})
          .finish();
  ::unlink(file.c_str());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("lost host b: .*; the others (continue|had finished)"));
}

TEST_F(Hosts, CommandLinesDoNotContainTheToken) {
  const Result result =
      start(2, "a,b", "tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo \"token $TUTTI_TOKEN\"")
          .finish();
  EXPECT_THAT(result.out, ContainsRegex(" agent *\n"));
  const size_t at = result.out.find("token ");
  ASSERT_NE(at, std::string::npos);
  const std::string token = result.out.substr(at + 6, 32);
  EXPECT_EQ(result.out.substr(0, at).find(token), std::string::npos);
}

TEST_F(Hosts, DeathsAreReportedAcrossHosts) {
  const Result result = start(3, "a,b",
                              "if [ $RANK = 2 ]; then echo why >&2; kill -9 $$; fi;"
                              "read -r -u $TUTTI_LAUNCHER_FD notice; echo \"$notice\"; exit 4")
                            .finish();
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.out, ContainsRegex("\\[0[^\n]*signal 2 [0-9]+ 9\n"));
  EXPECT_THAT(result.err, ContainsRegex("\\[2\\] why\ntutti run: rank 2 \\(b, pid [0-9]+\\) was "
                                        "killed by signal 9 \\(Killed\\)\n$"));
}

// Returns the names of 40 hosts. With kTree, each host starts the agents of at most 3 others.
std::string many_hosts(const std::string& more = "") {
  std::string hosts = "h0";
  for (int i = 1; i < 40; ++i) hosts += cat(",h", i);
  return hosts + more;
}
const Process::Environment kTree = {{"TUTTI_LAUNCH_FANOUT", "3"}};

TEST_F(Hosts, AgentsStartFurtherAgents) {
  // Each agent's parent is another agent, except for the first three.
  const Result result =
      start(40, many_hosts(), "ps -o args= -p $(ps -o ppid= -p $PPID)", kTree).finish();
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<std::string> lines = split(result.out, '\n');
  const auto holds = [&](const std::string& end) {
    return std::ranges::count_if(lines, [&](const std::string& l) { return l.ends_with(end); });
  };
  EXPECT_GE(holds(" agent"), 1) << result.out;
  EXPECT_GE(holds("$PPID)"), 1) << result.out;
}

TEST_F(Hosts, TreeOfHostsIsOneJob) {
  const Result result =
      start(80, many_hosts(), "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE", kTree)
          .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  for (int rank = 0; rank < 80; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(cat("[", rank, "] ", rank, "/80 ", rank % 2, "/2\n")));
  }
}

// Evaluates matching lines "[0-2,5] WORDS". Returns all ranks that have printed these words, in one
// line of output or in several, as on a busy machine.
std::set<int> ranks_that_printed(const std::string& output, const std::string& words) {
  std::set<int> ranks;
  const std::regex line("\\[([0-9,-]+)\\] " + words + "\n");
  for (std::sregex_iterator match(output.begin(), output.end(), line), end; match != end; ++match) {
    for (const std::string& range : split((*match)[1].str(), ',')) {
      const size_t dash = range.find('-');
      const int first = std::stoi(range);
      const int last = dash == range.npos ? first : std::stoi(range.substr(dash + 1));
      for (int rank = first; rank <= last; ++rank) ranks.insert(rank);
    }
  }
  return ranks;
}

TEST_F(Hosts, DeathsAreReportedThroughTheTree) {
  const Result result = start(40, many_hosts(),
                              "if [ $RANK = 39 ]; then kill -9 $$; fi;"
                              "read -r -u $TUTTI_LAUNCHER_FD notice; echo \"$notice\"; exit 4",
                              kTree)
                            .finish();
  EXPECT_EQ(result.code, 137);
  std::set<int> living;
  for (int rank = 0; rank < 39; ++rank) living.insert(rank);
  EXPECT_EQ(ranks_that_printed(result.out, "signal 39 [0-9]+ 9"), living) << result.out;
  EXPECT_THAT(result.err, ContainsRegex("rank 39 \\(h39, pid [0-9]+\\) was killed by signal 9"));
}

TEST_F(Hosts, SignalsReachTheWholeTree) {
  Process launcher =
      start(40, many_hosts(), "trap 'exit 0' TERM; echo $RANK; sleep 1000 & wait", kTree);
  launcher.read_lines(40);
  ::kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.finish().code, 128 + SIGTERM);
}

TEST_F(Hosts, NothingOutlivesATreeWhoseLauncherIsKilled) {
  Process launcher = start(40, many_hosts(), "echo $$; exec sleep 1000", kTree);
  std::vector<Watched> processes;
  for (const std::string& line : launcher.read_lines(40)) {
    processes.emplace_back(std::stoi(line.substr(line.find(']') + 1)));
  }
  ::kill(launcher.pid(), SIGKILL);
  for (const Watched& process : processes) process.wait_for_end();
  EXPECT_EQ(launcher.finish().code, 137);
}

// Kills the agent of the first host, through which others are reached.
TEST_F(Hosts, LostHostIsNamedWithTheHostsBehindIt) {
  const Result result =
      start(40, many_hosts(), "[ $RANK = 0 ] && kill -9 $PPID; sleep 1000 & wait", kTree).finish();
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("lost host h0 and the hosts reached through it"));
}

TEST_F(Hosts, UnreachableHostOfTheTreeIsNamed) {
  const Result result =
      start(41, many_hosts(",down"), "read -r -u $TUTTI_LAUNCHER_FD notice", kTree).finish();
  EXPECT_EQ(result.code, 255);
  EXPECT_THAT(result.err, HasSubstr("lost host down"));
}

// The real ssh passes its arguments to a shell on the other host, which splits them again.
TEST_F(Hosts, ProgramMayBeInAnyFolder) {
  namespace fs = std::filesystem;
  std::ofstream(shell_) << "#!/bin/sh\nshift\nexec sh -c \"$*\"\n";
  const fs::path folder = ::testing::TempDir() + cat("an odd 'folder' of $HOME; \"", ::getpid());
  fs::create_directory(folder);
  fs::copy_file(fs::canonical(launcher_path()), folder / "launcher", fs::copy_options::none);
  Process launcher({folder / "launcher", "2", "a,b", "1", "echo", "hi"},
                   {{"TUTTI_RSH", shell_}, {"TUTTI_INTERFACE", "lo"}});
  const Result result = launcher.finish();
  fs::remove_all(folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("hi\n"));
}

TEST_F(Hosts, SignalsReachEveryHost) {
  Process launcher = start(2, "a,b", "trap 'exit 0' TERM; echo $RANK; sleep 1000 & wait");
  launcher.read_lines(2);
  ::kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.finish().code, 128 + SIGTERM);
}

TEST_F(Hosts, NothingOutlivesALauncherThatIsKilled) {
  Process launcher = start(2, "a,b", "sleep 1000 & echo $$; echo $!; echo $PPID; wait");
  std::vector<Watched> processes;
  for (const std::string& line : launcher.read_lines(6)) {
    processes.emplace_back(std::stoi(line.substr(line.find(']') + 1)));
  }
  ASSERT_EQ(processes.size(), 6u);
  ::kill(launcher.pid(), SIGKILL);
  for (const Watched& process : processes) process.wait_for_end();
  EXPECT_EQ(launcher.finish().code, 137);
}

TEST_F(Hosts, LostHostEndsTheJob) {
  Process launcher = start(2, "a,b", "[ $RANK = 1 ] && kill -9 $PPID; sleep 1000 & wait");
  const Result result = launcher.finish();
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("lost host b"));
}

TEST_F(Hosts, UnreachableHostIsNamed) {
  const Result result = start(2, "a,down", "read -r -u $TUTTI_LAUNCHER_FD notice").finish();
  EXPECT_EQ(result.code, 255);
  EXPECT_THAT(result.err, HasSubstr("lost host down"));
  EXPECT_THAT(result.err, HasSubstr("remedy: try `"));
}

TEST_F(Hosts, MissingProgramIsNamedWithTheHost) {
  const Result result = start_launcher(2, "a,b", {"no-such-program"},
                                       {{"TUTTI_RSH", shell_}, {"TUTTI_INTERFACE", "lo"}})
                            .finish();
  EXPECT_EQ(result.code, 127);
  EXPECT_THAT(result.err, HasSubstr(": cannot run 'no-such-program'"));
}

TEST(Address, InterfacesAndAddressesAreAccepted) {
  EXPECT_EQ(reachable_address("nowhere.invalid", "lo"), "127.0.0.1");
  EXPECT_EQ(reachable_address("nowhere.invalid", "127.0.0.1"), "127.0.0.1");
  EXPECT_THROW(reachable_address("nowhere.invalid", "no-such-interface"), Error);
  const Listener listener = listen_on("127.0.0.1");
  EXPECT_GT(listener.port, 0);
}

}  // namespace
}  // namespace tutti::tool
