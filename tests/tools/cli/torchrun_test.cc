// Tests the program under torchrun itself: one agent and two, and an agent that restarts its ranks.
// Skipped without torchrun; TORCHRUN=PATH names one that is not on PATH.
#include <cstdlib>
#include <string>
#include <vector>

#include "base/path.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

// torchrun takes seconds to start, and longer on a busy machine.
constexpr std::chrono::seconds kTorchrunsPatience{120};

class Torchrun : public Cli {
 protected:
  void SetUp() override {
    const char* given = std::getenv("TORCHRUN");
    torchrun_ = given != nullptr ? given : find_program("torchrun");
    if (torchrun_.empty()) GTEST_SKIP() << "there is no torchrun (pip install torch): set TORCHRUN";
  }

  // Starts a single agent. By default it would use port 29500, which may be occupied.
  Process lone_agent(Words options, const std::string& script,
                     Process::Environment environment = {}) const {
    options.insert(options.end(), {"--master-port", cat(free_port())});
    return agent(options, script, std::move(environment));
  }

  // After "--" torchrun does not interpret options such as --max as its own.
  Process agent(const Words& options, const std::string& script,
                Process::Environment environment = {}) const {
    Words words = {torchrun_};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--no-python", "--", "sh", "-c", script});
    environment["OMP_NUM_THREADS"] = "1";  // otherwise torchrun sets this variable and warns
    environment["TUTTI_TRANSPORT"] = "tcp";
    return start_program(std::move(words), std::move(environment));
  }

  std::string bench() const {
    return cat(tutti(), " bench all_reduce --max 64K --factor 128 --iterations 20 --json ",
               path("result"));
  }
  void expect_right(int ranks) const {
    const Json document = Json::parse(read(path("result")));
    EXPECT_EQ(document["ranks"], ranks);
    for (const Json& result : document["results"]) EXPECT_EQ(result["wrong"], 0);
  }

  // Shell code that runs its command only in a rank's first start.
  std::string when_first() const { return cat("mkdir ", path("started."), "$RANK 2>&- && "); }

 private:
  std::string torchrun_;
};

TEST_F(Torchrun, StartsABenchmark) {
  const Result result = lone_agent({"--nproc-per-node", "3"}, "exec " + bench(),
                                   {{"TUTTI_TOKEN", "a token of this test"}})
                            .finish(kTorchrunsPatience);
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  expect_right(3);
}

// In its first start, rank 1 ends before it joins. Its agent counts a restart. The other agent
// stops its own waiting rank and counts none.
TEST_F(Torchrun, TwoAgentsFormOneJobAlsoAfterARestart) {
  const std::string script =
      cat("[ $RANK = 1 ] && ", when_first(), "exit 1; echo $TORCHELASTIC_RESTART_COUNT >",
          path("count."), "$RANK; exec ", bench());
  const Words options = {"--nnodes",         "2",
                         "--nproc-per-node", "1",
                         "--max-restarts",   "1",
                         "--rdzv-backend",   "c10d",
                         "--rdzv-endpoint",  cat("127.0.0.1:", free_port()),
                         "--rdzv-id",        "tutti",
                         "--local-addr",     "127.0.0.1"};
  Process one = agent(options, script);
  Process two = agent(options, script);
  for (Process* node : {&one, &two}) {
    const Result result = node->finish(kTorchrunsPatience);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
  }
  expect_right(2);
  EXPECT_NE(read(path("count.0")), read(path("count.1"))) << "else this test shows less";
}

// In its first start rank 1 leaves a process that the agent cannot stop and that looks for rank 0.
// In the second start rank 1 joins when rank 0 has refused that process and the process has ended.
TEST_F(Torchrun, RankOfAnEarlierStartIsRefused) {
  const std::string lock = path("lock");
  const std::string ready = path("ready");  // a pipe: the process is out of the agent's reach
  const std::string leave_one = cat(
      "{ if [ $RANK = 1 ]; then mkfifo ", ready, "; exec 9>", lock, "; flock 9; setsid sh -c '",
      "echo >", ready, "; TUTTI_INIT_TIMEOUT=20 exec ", tutti(), " bench all_reduce >/dev/null 2>",
      path("old"), "' & read line <", ready, "; fi; exit 1; }; ");
  const Result result = lone_agent({"--nproc-per-node", "2", "--max-restarts", "1"},
                                   cat(when_first(), leave_one, "[ $RANK = 0 ] || flock ", lock,
                                       " true; exec ", bench()))
                            .finish(kTorchrunsPatience);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  expect_right(2);
  EXPECT_THAT(read(path("old")), HasSubstr("different tokens"));
}

TEST_F(Torchrun, TrainingContinuesFromItsCheckpoint) {
  const std::string train =
      cat(tutti(), " train --data ", write_text(), " --hidden 16 --steps 8 --checkpoint ",
          path("run"), " --checkpoint-every 2 --resume auto --json ", path("losses"));
  const Result result = lone_agent({"--nproc-per-node", "2", "--max-restarts", "1"},
                                   cat(when_first(), "export TUTTI_FAULT=kill:1:20; exec ", train))
                            .finish(kTorchrunsPatience);
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  const std::string losses = read(path("losses"));
  for (int step = 1; step <= 8; ++step) {
    EXPECT_THAT(losses, HasSubstr(cat("{\"step\":", step, ",")));
  }
  EXPECT_EQ(losses.find("{\"step\":1,"), losses.rfind("{\"step\":1,")) << "it began anew";
}

}  // namespace
}  // namespace tutti::tool
