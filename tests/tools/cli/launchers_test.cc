// Tests the unmodified program under other launchers. Those of Open MPI, MPICH and PRRTE are the
// real ones. torchrun (see torchrun_test) and Kubernetes are represented by their environment
// variables.
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/path.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

struct Launcher {
  std::string name;
  Words command;     // words before the number of ranks
  std::string rank;  // variable that holds the rank
  std::string source;
  std::string package;
  std::string beside;       // program that also uses this launcher's MPI library; empty: none
  bool tells_place = true;  // true if the launcher gives each rank its index on its host
};

const Launcher kLaunchers[] = {
    {"OpenMpi",
     {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"},
     "OMPI_COMM_WORLD_RANK",
     "Open MPI",
     "openmpi-bin",
     "beside_openmpi"},
    {"Hydra", {"mpiexec.hydra", "-n"}, "PMI_RANK", "PMI", "mpich", "beside_mpich"},
    // Not packaged by Debian. Its PMIx and the one loaded by the ranks should have the same
    // version: --test_env=PRTERUN=PATH --test_env=LD_LIBRARY_PATH=FOLDER.
    {"Prte",
     {"prterun", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n"},
     "PMIX_RANK",
     "PMIx",
     "PRRTE; Open MPI 5 has it",
     "",
     false},
};

void PrintTo(const Launcher& launcher, std::ostream* out) { *out << launcher.name; }

class Launchers : public Cli, public ::testing::WithParamInterface<Launcher> {
 protected:
  void SetUp() override {
    command_ = GetParam().command;
    const char* given = command_.front() == "prterun" ? std::getenv("PRTERUN") : nullptr;
    if (given != nullptr) {
      command_.front() = given;
    } else if (find_program(command_.front()).empty()) {
      GTEST_SKIP() << command_.front() << " is not installed: " << GetParam().package;
    }
  }

  Process launch(int ranks, const Words& program, Process::Environment environment = {}) const {
    Words words = command_;
    words.push_back(cat(ranks));
    words.insert(words.end(), program.begin(), program.end());
    environment.emplace("HOME", path(""));  // PRRTE crashes if HOME is not set
    environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1";
    return start_program(words, std::move(environment));
  }

  // Expects that the launcher did not crash. Its exit code may be any, even 0 with Hydra.
  // TearDown() checks that no rank outlives the launcher.
  static void expect_own_end(const Result& result) {
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
      EXPECT_NE(result.code, 128 + signal) << result.out << result.err;
    }
  }

 private:
  Words command_;
};

TEST_P(Launchers, StartABenchmark) {
  const std::string file = path("result.json");
  const Result result = launch(3, {tutti(), "bench", "all_reduce", "--max", "64K", "--factor",
                                   "128", "--iterations", "2", "--json", file})
                            .finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, IsQuiet()) << "it has a token, too";
  const Json document = Json::parse(read(file));
  EXPECT_EQ(document["ranks"], 3);
  for (const Json& size : document["results"]) EXPECT_EQ(size["wrong"], 0);
}

TEST_P(Launchers, StartATraining) {
  const std::string file = path("losses");
  const Result result = launch(2, {tutti(), "train", "--data", write_text(), "--steps", "3",
                                   "--hidden", "16", "--json", file})
                            .finish();
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(read(file), HasSubstr("\"step\":3"));
}

TEST_P(Launchers, AreNamedByInfo) {
  const std::string info =
      cat("exec ", tutti(), " info --json ", path("info"), ".$", GetParam().rank);
  const Result result = launch(2, {"sh", "-c", info}).finish();
  ASSERT_EQ(result.code, 0) << result.err;
  for (int rank = 0; rank < 2; ++rank) {
    const Json job = Json::parse(read(path(cat("info.", rank))))["job"];
    EXPECT_EQ(job["source"], GetParam().source);
    EXPECT_EQ(job["rank"], rank);
    EXPECT_EQ(job["size"], 2);
    EXPECT_EQ(job["problem"], "");
    if (!GetParam().tells_place) continue;
    EXPECT_EQ(job["local_rank"], rank);
    EXPECT_EQ(job["local_size"], 2);
  }
}

TEST_P(Launchers, LetAProgramJoinTwice) {
  const Result result =
      launch(3, {std::filesystem::absolute("tests/tools/cli/two_worlds")}).finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "6\n");
}

TEST_P(Launchers, AlsoServeMpiInTheSameProgram) {
  if (GetParam().beside.empty()) GTEST_SKIP() << "it has no library of its own for calls";
  const auto program = std::filesystem::absolute("tests/tools/cli/" + GetParam().beside);
  if (!std::filesystem::exists(program)) {
    GTEST_SKIP() << "its library is not installed: " << GetParam().package;
  }
  for (const char* first : {"tutti", "mpi"}) {
    const Result result = launch(3, {program, first}).finish();
    EXPECT_EQ(result.code, 0) << first << result.err;
    EXPECT_EQ(result.out, "3 3\n") << first;
  }
}

TEST_P(Launchers, LeaveTheRendezvousToAnAddressThatIsSet) {
  const Result result =
      launch(2, {tutti(), "info"}, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29555"}})
          .finish();
  EXPECT_THAT(result.out, HasSubstr("ranks meet at 127.0.0.1:29555"));
}

TEST_P(Launchers, EndAllWhenARankDies) {
  Process job = launch(
      3, {tutti(), "bench", "all_reduce", "--min", "1M", "--max", "1M", "--iterations", "1000000"},
      {{"TUTTI_FAULT", "kill:1:9"}, {"TUTTI_TRANSPORT", "tcp"}});
  ASSERT_THAT(job.read_lines(1), Contains(HasSubstr("3 ranks"))) << "they have met";
  const Result result = job.finish();
  EXPECT_NE(result.code, 0);
  expect_own_end(result);
  EXPECT_THAT(result.out + result.err, HasSubstr("signal 9")) << "the launcher says how it ended";
}

TEST_P(Launchers, EndAllOnSigterm) {
  Process job = launch(
      2, {tutti(), "bench", "all_reduce", "--min", "1M", "--max", "1M", "--iterations", "1000000"});
  ASSERT_THAT(job.read_lines(1), Contains(HasSubstr("2 ranks"))) << "they have met";
  ::kill(job.pid(), SIGTERM);
  expect_own_end(job.finish());
}

INSTANTIATE_TEST_SUITE_P(Real, Launchers, ::testing::ValuesIn(kLaunchers),
                         [](const auto& info) { return info.param.name; });

class Told : public Cli {
 protected:
  Json job(Process::Environment environment) const {
    const Result result = run({"info", "--json", "-"}, std::move(environment));
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out)["job"];
  }
};

TEST_F(Told, FindsNoJobWithoutVariables) {
  const Json found = job({});
  EXPECT_TRUE(found["source"].is_null());
  EXPECT_EQ(found["size"], 1);
}

TEST_F(Told, FindsJobsOfTorchrunAndKubernetes) {
  const Process::Environment place = {{"MASTER_ADDR", "pod-0"}, {"MASTER_PORT", "29500"}};
  Process::Environment torchrun = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}};
  torchrun.insert(place.begin(), place.end());
  EXPECT_EQ(job(torchrun)["source"], "torchrun");
  EXPECT_EQ(job(torchrun)["meets_at"], "pod-0:29501-29508");
  Process::Environment pod = {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}};
  pod.insert(place.begin(), place.end());
  EXPECT_EQ(job(pod)["source"], "Kubernetes");
  EXPECT_EQ(job(pod)["rank"], 1);
}

TEST_F(Told, RefusesIncompleteVariables) {
  EXPECT_THAT(job({{"RANK", "1"}})["problem"].get<std::string>(),
              HasSubstr("RANK is set, but WORLD_SIZE is not"));
  EXPECT_THAT(run({"bench", "all_reduce"}, {{"WORLD_SIZE", "2"}}).err,
              HasSubstr("WORLD_SIZE is set, but RANK is not"));
}

// The program is the first process, which has no default signal actions, as in a container.
TEST_F(Told, EndsOnSigtermAsTheFirstProcess) {
  const Words first = {"unshare", "--pid", "--fork", "--kill-child"};
  Words probe = first;
  probe.emplace_back("true");
  if (const Result possible = start_program(probe).finish(); possible.code != 0) {
    GTEST_SKIP() << "no process namespaces: " << possible.err;
  }
  // The shell is the second process. It sends SIGTERM to the first process until that has ended.
  const std::string command = cat("(while :; do kill -TERM 1 || exit; done) & exec ", tutti(),
                                  " bench all_reduce --min 1M --max 1M --iterations 100000000");
  Words words = first;
  words.insert(words.end(), {"sh", "-c", command});
  EXPECT_EQ(start_program(words).finish().code, 128 + SIGTERM);
}

}  // namespace
}  // namespace tutti::tool
