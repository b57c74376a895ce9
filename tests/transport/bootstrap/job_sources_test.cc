// Tests that the job is found in the environment that a launcher sets. The environments are those
// of real launchers.
#include "transport/bootstrap/discovery/job_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/error.h"
#include "topology/host_list.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

std::optional<FoundJob> find(const Variables& variables) { return find_job(of(variables)); }

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

std::string failure(const Variables& variables) {
  try {
    find(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

const Variables kByHand = {{"RANK", "2"}, {"WORLD_SIZE", "4"}};
const Variables kTorchrun = with(kByHand, {{"LOCAL_RANK", "0"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"TORCHELASTIC_RUN_ID", "none"},
                                           {"TORCHELASTIC_RESTART_COUNT", "0"},
                                           {"MASTER_ADDR", "node1"},
                                           {"MASTER_PORT", "29500"}});
const Variables kSlurm = {{"SLURM_PROCID", "2"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NTASKS", "3"},
                          {"SLURM_STEP_NUM_TASKS", "3"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                          {"SLURM_STEP_NODELIST", "n[07-08]"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "123"},
                          {"SLURM_JOB_NODELIST", "n[01-09]"}};
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "1286930433"},    {"PMIX_RANK", "1"}};
const Variables kHydra = {{"PMI_RANK", "0"},
                          {"PMI_SIZE", "2"},
                          {"PMI_FD", "6"},
                          {"MPI_LOCALRANKID", "0"},
                          {"MPI_LOCALNRANKS", "2"}};

TEST(JobSources, AnEmptyEnvironmentHasNoJob) {
  EXPECT_FALSE(find({}));
  EXPECT_FALSE(find({{"RANK", ""}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}));
}

TEST(JobSources, VariablesSetByHand) {
  const auto job = find(kByHand);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->source, "variables");
  EXPECT_EQ(job->rank, 2);
  EXPECT_EQ(job->size, 4);
  EXPECT_TRUE(job->explicit_ranks);
  EXPECT_EQ(job->local_rank, std::nullopt);
}

TEST(JobSources, TuttiRunAndTorchrun) {
  EXPECT_EQ(find(with(kByHand, {{"TUTTI_LAUNCHER_FD", "7"}}))->source, "tutti run");
  const auto job = find(kTorchrun);
  EXPECT_EQ(job->source, "torchrun");
  EXPECT_EQ(job->local_size, 2);
}

// The agents of two nodes may have counted different numbers of restarts.
TEST(JobSources, TorchrunProvidesTheIncarnation) {
  const auto start = [](const Variables& more) { return find(with(kTorchrun, more))->incarnation; };
  const Variables lone = {{"GROUP_WORLD_SIZE", "1"}};
  const Variables again = {{"TORCHELASTIC_RESTART_COUNT", "1"}};
  const Variables other = {{"TORCHELASTIC_RUN_ID", "other"}};
  EXPECT_NE(start(lone), start(with(lone, again)));
  EXPECT_NE(start(lone), start(with(lone, other)));
  EXPECT_NE(start(lone), start(with(lone, {{"MASTER_PORT", "29600"}})));
  const Variables two = {{"GROUP_WORLD_SIZE", "2"}};
  EXPECT_EQ(start(two), start(with(two, again)));
  EXPECT_NE(start(two), start(with(two, other)));
  EXPECT_EQ(find(kByHand)->incarnation, "");
}

TEST(JobSources, Slurm) {
  const auto job = find(kSlurm);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->source, "Slurm");
  EXPECT_EQ(job->rank, 2);
  EXPECT_EQ(job->size, 3);
  EXPECT_EQ(job->local_rank, 0);
  EXPECT_EQ(job->local_size, 1);
  EXPECT_EQ(job->address, "n07") << "of the step, not of the allocation";
  EXPECT_EQ(job->port, 15123);
  EXPECT_EQ(job->store, JobStore::none);
}

TEST(JobSources, SlurmsPortsDifferByJobAndStep) {
  const auto port = [](const char* id, const char* step) {
    return find(with(kSlurm, {{"SLURM_JOB_ID", id}, {"SLURM_STEP_ID", step}}))->port;
  };
  EXPECT_NE(port("123", "0"), port("124", "0"));
  EXPECT_NE(port("123", "0"), port("123", "1"));
  for (const char* id : {"1", "16383", "16384", "2147483647"}) {
    for (const char* step : {"0", "1", "77777"}) {
      EXPECT_GE(port(id, step), 15000);
      EXPECT_LE(port(id, step), 31383);
    }
  }
}

// A batch script has SLURM_PROCID=0, and the number of tasks that its steps may have.
TEST(JobSources, ABatchScriptOfSlurmIsNoRank) {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  script.erase("SLURM_STEP_NUM_TASKS");
  script["SLURM_PROCID"] = "0";
  EXPECT_FALSE(find(script));
}

TEST(JobSources, ATaskOfSlurmThatLacksItsStepIsNamed) {
  for (const char* const lacks : {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"}) {
    Variables task = kSlurm;
    task.erase(lacks);
    try {
      find(task);
      ADD_FAILURE() << "it would be alone";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("SLURM_PROCID=2"), HasSubstr(lacks)));
    }
  }
}

// salloc opens a shell in a separate step with this number.
TEST(JobSources, AStepOfOneTaskIsAJobOfOneRank) {
  const auto job = find(with(
      kSlurm,
      {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967290"}}));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->size, 1);
}

// srun has started the daemons of prterun.
TEST(JobSources, PrterunInSlurmIsNotMistakenForSlurm) {
  const auto job = find({{"PMIX_RANK", "3"},
                         {"PMIX_NAMESPACE", "prterun-1"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(job->size, 0) << "PMIx knows";
  EXPECT_FALSE(job->local_rank);
}

TEST(JobSources, OpenMpi) {
  const auto job = find(kOpenMpi);
  EXPECT_EQ(job->source, "Open MPI");
  EXPECT_EQ(job->rank, 1);
  EXPECT_EQ(job->size, 2);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->store, JobStore::pmix);
}

TEST(JobSources, Pmix) {
  const auto alone = find({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1"}});
  EXPECT_EQ(alone->source, "PMIx");
  EXPECT_EQ(alone->rank, 3);
  EXPECT_EQ(alone->size, 0) << "PMIx knows";
  const auto slurms =
      find(with(kSlurm, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.4.0"}}));
  EXPECT_EQ(slurms->source, "PMIx");
  EXPECT_EQ(slurms->size, 3);
}

TEST(JobSources, Hydra) {
  const auto job = find(kHydra);
  EXPECT_EQ(job->source, "PMI");
  EXPECT_EQ(job->rank, 0);
  EXPECT_EQ(job->size, 2);
  EXPECT_EQ(job->local_size, 2);
  EXPECT_EQ(job->store, JobStore::pmi);
}

TEST(JobSources, Jsrun) {
  const auto job = find({{"JSM_NAMESPACE_RANK", "1"},
                         {"JSM_NAMESPACE_SIZE", "6"},
                         {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                         {"JSM_NAMESPACE_LOCAL_SIZE", "3"}});
  EXPECT_EQ(job->source, "jsrun");
  EXPECT_EQ(job->rank, 1);
  EXPECT_EQ(job->size, 6);
}

TEST(JobSources, KubernetesProvidesTheIndexAndTheManifestTheSize) {
  EXPECT_FALSE(find({{"JOB_COMPLETION_INDEX", "3"}})) << "pods that work on their own";
  const auto job = find({{"JOB_COMPLETION_INDEX", "3"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(job->source, "Kubernetes");
  EXPECT_EQ(job->rank, 3);
  EXPECT_EQ(job->size, 4);
}

// In an allocation, mpirun starts its daemons by srun, which sets its own rank variables.
TEST(JobSources, TheInnermostLauncherWins) {
  EXPECT_EQ(find(with(kSlurm, kOpenMpi))->source, "Open MPI");
  EXPECT_EQ(find(with(kSlurm, kHydra))->source, "PMI");
  EXPECT_EQ(find(with(with(kSlurm, kOpenMpi), kTorchrun))->source, "torchrun");
}

TEST(JobSources, IncompleteVariablesAreNamed) {
  EXPECT_THAT(failure({{"RANK", "1"}}), HasSubstr("RANK is set, but WORLD_SIZE is not"));
  EXPECT_THAT(failure({{"WORLD_SIZE", "1"}}), HasSubstr("WORLD_SIZE is set, but RANK is not"));
  EXPECT_THAT(failure({{"PMI_RANK", "1"}, {"PMI_FD", "5"}}), HasSubstr("PMI_SIZE is not"));
  EXPECT_THAT(failure(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK='2' is not a whole number from 0 to 1"));
  EXPECT_THAT(failure(with(kSlurm, {{"SLURM_STEP_NODELIST", ""}})),
              HasSubstr("SLURM_STEP_NODELIST is not"));
  EXPECT_THAT(failure(with(kSlurm, {{"SLURM_LOCALID", "x"}})), HasSubstr("SLURM_LOCALID='x'"));
}

TEST(JobSources, AContradictorySizeIsNamed) {
  EXPECT_EQ(find(with(kSlurm, {{"WORLD_SIZE", "3"}}))->source, "Slurm");
  EXPECT_THAT(failure(with(kSlurm, {{"WORLD_SIZE", "6"}})),
              AllOf(HasSubstr("WORLD_SIZE is 6, but Slurm started 3 ranks"), HasSubstr("RANK")));
}

TEST(JobSources, EachSourceHasAReadableName) {
  for (const JobSource& source : job_sources()) {
    EXPECT_FALSE(source.name.empty() || source.recognised_by.empty() || source.meets_at.empty());
  }
}

TEST(HostList, ReadsSlurmsFormat) {
  EXPECT_THAT(expand_host_list("node[01-03,7],x"),
              ElementsAre("node01", "node02", "node03", "node7", "x"));
  EXPECT_THAT(expand_host_list("a"), ElementsAre("a"));
  EXPECT_THAT(expand_host_list("r[1-2]n[8-10]-ib"),
              ElementsAre("r1n8-ib", "r1n9-ib", "r1n10-ib", "r2n8-ib", "r2n9-ib", "r2n10-ib"));
  EXPECT_THAT(expand_host_list("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_host_list("n[0-9999]"), SizeIs(10000));
}

TEST(HostList, InvalidListsAreQuoted) {
  for (const char* text : {"", "a,", ",a", "n[1", "n[]", "n[2-1]", "n[a-b]", "n[1-2-3]", "n[-1]",
                           "n[0-99999999999]", "n[0-9999][0-9999]", "n[1-99999999999999999999]"}) {
    EXPECT_THROW(expand_host_list(text), Error) << text;
  }
}

TEST(Counts, ReadSlurmsFormat) {
  EXPECT_THAT(expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_counts("16"), ElementsAre(16));
  for (const char* text : {"", "x", "2(x", "2(x0)", "2(y3)", "-1", "2(x99999999)"}) {
    EXPECT_THROW(expand_counts(text), Error) << text;
  }
}

}  // namespace
}  // namespace tutti
