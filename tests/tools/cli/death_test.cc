// Tests ranks and launchers killed with -9.
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/tools/cli/deaths.h"

namespace tutti::tool {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Death : public Deaths {
 protected:
  // Returns the arguments of a training that runs for minutes unless terminated.
  Words endless_training(int ranks) const {
    return {"train", "--data",   write_text(), "--ranks", cat(ranks),    "--steps",
            "2000",  "--hidden", "64",         "--json",  path("losses")};
  }

  Words endless_pipeline(int stages, int micro_batches = 4) const {
    return {"train",
            "--data",
            write_text(),
            "--model",
            "gpt2",
            "--layers",
            "3",
            "--width",
            "32",
            "--heads",
            "2",
            "--context",
            "16",
            "--pp",
            cat(stages),
            "--micro-batches",
            cat(micro_batches),
            "--micro-batch",
            "1",
            "--steps",
            "2000"};
  }
};

// Deaths over fabrics are tested in fabric_death_test.cc.
TEST_F(Death, KilledRankEndsABench) {
  for (const std::string transport : {"shm", "tcp"}) {
    for (const int rank : {0, 2}) {
      SCOPED_TRACE(cat(transport, ", rank ", rank));
      Process job = start(endless_bench(3, transport));
      ASSERT_THAT(job.read_lines(2), SizeIs(2)) << "the header";
      expect_a_clear_end(job, 3, rank);
    }
  }
}

TEST_F(Death, KilledRankOfManyEndsABench) {
  Process job = start(endless_bench(16, "shm"));
  ASSERT_THAT(job.read_lines(2), SizeIs(2));
  expect_a_clear_end(job, 16, 7);
}

TEST_F(Death, KilledRankEndsATraining) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    Process job = start(endless_training(3));
    ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "a tenth is done";
    expect_a_clear_end(job, 3, rank);
    EXPECT_THAT(read(path("losses")), HasSubstr("{\"step\":1,\"loss\":")) << "what was done stays";
  }
}

TEST_F(Death, KilledStageEndsAPipeline) {
  for (const int stage : {0, 1, 3}) {
    SCOPED_TRACE(stage);
    Process job = start(endless_pipeline(4));
    ASSERT_FALSE(job.read_lines(1).empty());
    const pid_t pid = process_of_rank(stage);
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGKILL);
    const Result result = job.finish(kEndsWithin);
    EXPECT_EQ(result.code, 128 + SIGKILL);
    EXPECT_THAT(result.err, HasSubstr(cat(", pid ", pid, ") was killed by signal 9 (Killed)")));
    const Words said = said_of(result, pid);
    EXPECT_THAT(said, SizeIs(3)) << result.err;
    EXPECT_THAT(said, Each(HasSubstr(") was killed by signal 9 (Killed)")));
    EXPECT_THAT(said, Each(ContainsRegex(cat(", pid ", pid, "\\)(,| is) stage ", stage))));
  }
}

// In a mesh each rank shares communicators with some of the other ranks. All ranks must report the
// rank that died at its n-th message, not the ranks that ended because of its death.
TEST_F(Death, AllRanksOfAMeshReportADeath) {
  Words training = endless_pipeline(2);
  training.insert(training.end(), {"--dp", "2"});
  for (int rank = 0; rank < 4; ++rank) {
    for (const int message : {5, 19, 25, 38}) {
      SCOPED_TRACE(cat("rank ", rank, " at message ", message));
      const Result result = run(training, {{"TUTTI_FAULT", cat("kill:", rank, ":", message)}});
      EXPECT_EQ(result.code, 128 + SIGKILL);
      const std::string last = result.err.substr(result.err.rfind("tutti run: "));
      EXPECT_THAT(last, ContainsRegex(cat("^tutti run: rank ", rank,
                                          " \\([^)]*\\) was killed by "
                                          "signal 9 \\(Killed\\)\n$")));
      Words said;
      for (const std::string& line : split(result.err, '\n')) {
        if (line.starts_with("tutti: ")) said.push_back(line);
      }
      EXPECT_THAT(said, SizeIs(3)) << result.err;
      EXPECT_THAT(
          said,
          Each(ContainsRegex(cat("^tutti: rank ", rank, " \\([^)]*\\) was killed by signal 9 "))));
    }
  }
}

TEST_F(Death, TwoDeathsAreBothReported) {
  Process job = start(endless_bench(4, "shm"));
  ASSERT_THAT(job.read_lines(2), SizeIs(2)) << "the header";
  const std::vector<pid_t> pids = {process_of_rank(1), process_of_rank(3)};
  for (const pid_t pid : pids) ASSERT_GT(pid, 0);
  for (const pid_t pid : pids) ::kill(pid, SIGKILL);
  const Result result = job.finish(kEndsWithin);
  EXPECT_EQ(result.code, 128 + SIGKILL);
  for (const pid_t pid : pids) {
    EXPECT_THAT(result.err, ContainsRegex(cat("\ntutti run: rank [13] \\([^)]*, pid ", pid,
                                              "\\) was killed by signal 9 \\(Killed\\)\n")));
    EXPECT_THAT(said_of(result, pid), SizeIs(2)) << result.err;
  }
}

// The stage dies at its n-th message to other stages. The first step has 80 of them.
TEST_F(Death, DeathOfAStageIsReportedWithTheMicroBatch) {
  for (const int message : {20, 41, 62, 80}) {
    SCOPED_TRACE(message);
    const Result result = run(endless_pipeline(4, 40), {{"TUTTI_FAULT", cat("kill:1:", message)}});
    EXPECT_EQ(result.code, 128 + SIGKILL);
    size_t told = 0;
    for (const std::string& line : split(result.err, '\n')) {
      if (!line.starts_with("tutti: rank 1 (")) continue;
      EXPECT_THAT(line, HasSubstr(") was killed by signal 9 (Killed)"));
      told += line.find(" of micro-batch ") != line.npos ? 1 : 0;
    }
    EXPECT_GE(told, 1U) << result.err;
  }
}

TEST_F(Death, StoppedStageEndsAPipeline) {
  for (const int stage : {0, 2}) {
    SCOPED_TRACE(stage);
    Process job = start(endless_pipeline(4), {{"TUTTI_TIMEOUT", "2"}});
    ASSERT_FALSE(job.read_lines(1).empty());
    const pid_t pid = process_of_rank(stage);
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGSTOP);
    const Result result = job.finish(kEndsWithin);
    EXPECT_EQ(result.code, 1);
    Words said = said_of(result, pid);
    // The stopped rank continues afterwards and may also report that it waited.
    std::erase_if(said, [&](const std::string& line) {
      return line.starts_with(cat("tutti: rank ", stage, " ("));
    });
    EXPECT_GE(said.size(), 3U) << result.err;
    EXPECT_THAT(said, Each(HasSubstr(" timed out after 2 s in ")));
    EXPECT_THAT(said,
                Each(ContainsRegex(cat("(waiting for|is reached through) rank ", stage,
                                       " \\([^,]*, pid ", pid, "\\), which does not answer"))));
    EXPECT_THAT(said, Each(ContainsRegex(cat(", pid ", pid, "\\)(,| is) stage ", stage))));
  }
}

TEST_F(Death, KilledLauncherEndsTheRanks) {
  for (const Words& arguments :
       {endless_bench(3, "shm"), endless_bench(3, "tcp"), endless_training(3)}) {
    SCOPED_TRACE(arguments[0]);
    Process job = start(arguments);
    ASSERT_FALSE(job.read_lines(1).empty());
    std::vector<Watched> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t pid = process_of_rank(rank);
      ASSERT_GT(pid, 0);
      ranks.emplace_back(pid);
    }
    ::kill(job.pid(), SIGKILL);
    for (const Watched& rank : ranks) rank.wait_for_end();
    EXPECT_EQ(job.finish(kEndsWithin).code, 128 + SIGKILL);
  }
}

TEST_F(Death, InterruptEndsTheJob) {
  Process job = start(endless_bench(3, "shm"));
  ASSERT_THAT(job.read_lines(2), SizeIs(2));
  ::kill(job.pid(), SIGINT);
  const Result result = job.finish(kEndsWithin);
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_THAT(result.err, EndsWith("ended by signal 2 (Interrupt)\n"));
}

// The limit leaves address space for a rank's data, but less than the size of the machine's memory.
TEST_F(Death, LimitedAddressSpaceKillsNoRank) {
  const int64_t memory = ::sysconf(_SC_PHYS_PAGES) * (::sysconf(_SC_PAGESIZE) / 1024);  // KiB
  const Result result =
      start_program({"sh", "-c",
                     cat("ulimit -v ", memory / 2 * 3,
                         " && \"$0\" bench all_reduce -n 2 --buffers library --min 1M --max 1M"),
                     tutti()})
          .finish();
  EXPECT_EQ(result.code, 0) << result.err;
}

}  // namespace
}  // namespace tutti::tool
