// Tests jobs under a real Slurm, whose controller and two nodes run on this host during the test.
// Skipped if Slurm is not installed or cannot be started.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/path.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool resolves(const std::string& host) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

class Slurm : public Cli {
 protected:
  void SetUp() override {
    const char* path = std::getenv("PATH");
    ::setenv("PATH", cat(path != nullptr ? path : "/usr/bin:/bin", ":/usr/sbin:/sbin").c_str(), 1);
    for (const char* program : {"slurmctld", "slurmd", "srun", "salloc", "sbatch", "sinfo"}) {
      if (find_program(program).empty()) GTEST_SKIP() << program << " is not installed: slurm-wlm";
    }
    if (::geteuid() != 0) GTEST_SKIP() << "only root can start a slurmd";
    static std::string cannot_start;  // reason of a failed start, which later tests do not repeat
    if (!cannot_start.empty()) GTEST_SKIP() << "Slurm does not start: " << cannot_start;
    std::string name = "/tmp/tutti-slurm.XXXXXX";  // slurmd's sockets have short names only
    if (::mkdtemp(name.data()) == nullptr) throw system_error(cat("mkdtemp ", name), errno);
    folder_ = name;
    write_configuration();
    daemons_.push_back(daemon({"slurmctld", "-D", "-c"}));
    for (const std::string& node : {host_name(), second_}) {
      daemons_.push_back(daemon({"slurmd", "-D", "-N", node}));
    }
    if (wait_until_idle()) return;
    cannot_start = sinfo().out + sinfo().err;
    daemons_.clear();
    GTEST_SKIP() << "Slurm does not start: " << cannot_start;
  }

  void TearDown() override {
    // A step that ends notifies the controller, and would wait long if the controller had ended.
    if (!daemons_.empty()) wait_until_idle();
    while (!daemons_.empty()) {  // the controller last
      ::kill(daemons_.back()->pid(), SIGTERM);
      daemons_.back()->finish();
      daemons_.pop_back();
    }
    Cli::TearDown();
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  Process job(Words command, Process::Environment environment = {}) const {
    environment["SLURM_CONF"] = folder_ / "slurm.conf";
    environment.emplace("TUTTI_INIT_TIMEOUT", "30");
    if (!resolves(host_name())) environment["MASTER_ADDR"] = "127.0.0.1";
    return start_program(std::move(command), std::move(environment));
  }

  Words bench(const std::string& file) const {
    return {tutti(), "bench",        "all_reduce", "--max",  "64K",     "--factor",
            "128",   "--iterations", "2",          "--json", path(file)};
  }
  Words endless_bench() const {
    return {tutti(), "bench", "all_reduce",   "--min",  "1M",
            "--max", "1M",    "--iterations", "1000000"};
  }

  void expect_right(const std::string& file, int ranks) const {
    const Json document = Json::parse(read(path(file)));
    EXPECT_EQ(document["ranks"], ranks);
    for (const Json& result : document["results"]) EXPECT_EQ(result["wrong"], 0);
  }

  static Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Name of the second node, which is not the name of a host. Slurm orders nodes by name, and this
  // name follows that of the first node.
  const std::string second_ = host_name() + "-b";

 private:
  void write_configuration() const {
    const std::string folder = folder_;
    std::ofstream file(folder_ / "slurm.conf");
    file << "ClusterName=tutti\nSlurmctldHost=" << host_name() << "(127.0.0.1)\n"
         << "SlurmUser=root\nSlurmdUser=root\nSlurmctldPort=" << free_port() << '\n'
         << "AuthType=auth/none\nCredType=cred/none\nMpiDefault=none\n"
         << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
         << "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n"
         << "SlurmdParameters=config_overrides\nSchedulerParameters=bf_interval=1\n"
         << "KillWait=5\nMailProg=/bin/true\n"
         // Tutti derives ports from the job's ID, which therefore differs between concurrent runs
         // of this test on one machine.
         << "FirstJobId=" << 1 + ::getpid() % 16000 << '\n'
         << "SlurmctldPidFile=" << folder << "/slurmctld.pid\nSlurmdPidFile=" << folder
         << "/%n.pid\nSlurmdSpoolDir=" << folder << "/%n\nStateSaveLocation=" << folder
         << "/state\nSlurmctldLogFile=" << folder << "/slurmctld.log\nSlurmdLogFile=" << folder
         << "/%n.log\n";
    for (const std::string& node : {host_name(), second_}) {
      file << "NodeName=" << node << " NodeHostname=" << host_name()
           << " NodeAddr=127.0.0.1 Port=" << free_port() << " CPUs=8 CoresPerSocket=8\n";
      std::filesystem::create_directory(folder_ / node);
    }
    file << "PartitionName=all Nodes=ALL Default=YES State=UP\n";
    std::filesystem::create_directory(folder_ / "state");
  }

  std::unique_ptr<Process> daemon(Words command) const {
    command.front() = find_program(command.front());
    return std::make_unique<Process>(
        std::move(command),
        Process::Environment{{"SLURM_CONF", folder_ / "slurm.conf"}, {"CLI_TEST", mark()}});
  }

  Result sinfo() const { return job({"sinfo", "-h", "-N", "-o", "%t"}).finish(); }

  bool wait_until_idle() const {
    for (const Deadline deadline = Deadline::after(testing::kPatience); !deadline.passed();) {
      if (sinfo().out == "idle\nidle\n") return true;
    }
    return false;
  }

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Process>> daemons_;
};

TEST_F(Slurm, SrunStartsRanksOnBothNodes) {
  const Result result = job(joined({"srun", "-n", "4", "-N", "2"}, bench("result")),
                            {{"TUTTI_TOKEN", "a token that is ours"}})
                            .finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  expect_right("result", 4);
}

TEST_F(Slurm, WarnsAboutAJobWithoutAToken) {
  const Result result = job(joined({"srun", "-n", "2", "-N", "2"}, bench("result"))).finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("no token"), HasSubstr("TUTTI_TOKEN_FILE")));
}

TEST_F(Slurm, InfoShowsTheSource) {
  const Result result =
      job({"srun", "-n", "3", "-N", "2", "sh", "-c",
           cat("exec ", tutti(), " info --json ", path("info"), ".$SLURM_PROCID")})
          .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  for (int rank = 0; rank < 3; ++rank) {
    const Json found = Json::parse(read(path(cat("info.", rank))))["job"];
    EXPECT_EQ(found["source"], "Slurm");
    EXPECT_EQ(found["rank"], rank);
    EXPECT_EQ(found["size"], 3);
    EXPECT_EQ(found["local_size"], rank < 2 ? 2 : 1);
  }
}

// With PMIx, a job has its own token.
TEST_F(Slurm, WorksWithPmix) {
  const Result types = job({"srun", "--mpi=list"}).finish();
  if ((types.out + types.err).find("pmix") == std::string::npos) {
    GTEST_SKIP() << "this Slurm was built without PMIx";
  }
  // Two servers of PMIx on one host would use the same socket.
  const Result result =
      job(joined({"srun", "--mpi=pmix", "-n", "3", "-N", "1"}, bench("result"))).finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  expect_right("result", 3);
}

TEST_F(Slurm, WorksWithPmi) {
  const Result result =
      job(joined({"srun", "--mpi=pmi2", "-n", "4", "-N", "2"}, bench("result"))).finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  expect_right("result", 4);
}

TEST_F(Slurm, StepsOfOneAllocationDoNotMeet) {
  std::string step = "srun --exact -n 2 -N 2";
  for (const std::string& word : bench("result")) step += ' ' + word;
  const Result result = job({"salloc", "-Q", "-n", "4", "-N", "2", "sh", "-c",
                             cat(step, ".1 & ", step, ".2; code=$?; wait $! && exit $code")},
                            {{"TUTTI_TOKEN", "a token that is ours"}})
                            .finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  expect_right("result.1", 2);
  expect_right("result.2", 2);
}

TEST_F(Slurm, AHeterogeneousJobIsOneWorld) {
  const Result result =
      job(joined({"srun", "-Q", "-n", "1", "-N", "1", tutti(), "info", ":", "-n", "2", "-N", "1"},
                 {tutti(), "info"}))
          .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(cat("rank ", rank, " of 3")));
  }
  std::set<std::string> places;
  for (const std::string& line : split(result.out, '\n')) {
    const size_t at = line.find("ranks meet at");
    if (at != std::string::npos) places.insert(line.substr(at));
  }
  EXPECT_EQ(places.size(), 1) << result.out;
}

TEST_F(Slurm, TuttiRunUsesTheHostsOfTheAllocation) {
  const Result result =
      job(joined({"salloc", "-Q", "-N", "2", "-n", "3", tutti(), "run", "--"}, bench("result")))
          .finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  expect_right("result", 3);
  const Result hosts = job({"salloc", "-Q", "-N", "2", "-n", "3", tutti(), "run", "--", "sh", "-c",
                            "echo $SLURMD_NODENAME"})
                           .finish();
  EXPECT_THAT(hosts.out, HasSubstr(cat("] ", second_, "\n")));
  EXPECT_THAT(hosts.out, HasSubstr(cat("] ", host_name(), "\n")));
}

// The unmodified template: 4 tasks on each of 2 nodes.
TEST_F(Slurm, BatchTemplateRuns) {
  const Result result =
      job(joined({"sbatch", "--wait", "-Q", "-o", path("out"), "tools/jobs/slurm/job.sbatch"},
                 bench("result")))
          .finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err << read(path("out"));
  EXPECT_THAT(read(path("out")), Not(HasSubstr("warning")));
  expect_right("result", 8);
}

TEST_F(Slurm, KilledRankEndsAll) {
  const Result result = job(joined({"srun", "-n", "4", "-N", "2"}, endless_bench()),
                            {{"TUTTI_FAULT", "kill:3:9"}, {"TUTTI_TRANSPORT", "tcp"}})
                            .finish();
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 3"), HasSubstr("task 3: Killed")));
}

TEST_F(Slurm, ScancelEndsAll) {
  Process running = job(joined({"srun", "-J", "endless", "-n", "4", "-N", "2"}, endless_bench()));
  running.read_lines(1);
  EXPECT_EQ(job({"scancel", "-n", "endless"}).finish().code, 0);
  const Result result = running.finish();
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, Not(HasSubstr("internal")));
}

}  // namespace
}  // namespace tutti::tool
