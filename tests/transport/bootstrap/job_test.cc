#include "transport/bootstrap/discovery/job.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/fd.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const char* const kToken = "a token set directly";

class JobTest : public ::testing::Test {
 protected:
  static constexpr std::array kVariables = {"RANK",
                                            "WORLD_SIZE",
                                            "LOCAL_RANK",
                                            "LOCAL_WORLD_SIZE",
                                            "MASTER_ADDR",
                                            "MASTER_PORT",
                                            "TORCHELASTIC_RUN_ID",
                                            "TORCHELASTIC_USE_AGENT_STORE",
                                            "OMPI_COMM_WORLD_RANK",
                                            "OMPI_COMM_WORLD_SIZE",
                                            "PMIX_NAMESPACE",
                                            "PMIX_RANK",
                                            "PMI_RANK",
                                            "PMI_SIZE",
                                            "PMI_FD",
                                            "SLURM_PROCID",
                                            "SLURM_STEP_ID",
                                            "SLURM_STEP_NUM_TASKS",
                                            "SLURM_STEP_NODELIST",
                                            "SLURM_JOB_ID",
                                            "JOB_COMPLETION_INDEX"};
  JobTest() { clear(); }
  ~JobTest() override { clear(); }

  static void clear() {
    for (const char* name : kVariables) ::unsetenv(name);
    for (const SettingInfo& setting : all_settings()) {
      settings().set(setting.name, setting.default_value, "default");
    }
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  static void set_ranks(int rank, int size) {
    set("RANK", cat(rank));
    set("WORLD_SIZE", cat(size));
    set("MASTER_ADDR", "10.0.0.1");
    set("MASTER_PORT", "29500");
  }
  static std::string failure() {
    try {
      job_from_environment();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};

TEST_F(JobTest, ThereIsOneRankWithoutAnyVariable) {
  const Job job = job_from_environment();
  EXPECT_EQ(job.rank, 0);
  EXPECT_EQ(job.size, 1);
}

TEST_F(JobTest, VariablesDescribeIt) {
  set_ranks(2, 4);
  settings().set("TUTTI_TOKEN", kToken);
  settings().set("TUTTI_INIT_TIMEOUT", "1.5");
  const Job job = job_from_environment();
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.master_address, "10.0.0.1");
  EXPECT_EQ(job.master_port, 29500);
  EXPECT_EQ(job.token, kToken);
  EXPECT_EQ(job.init_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(job.wire_settings, settings().wire_settings());
}

void set_slurms_step() {
  ::setenv("SLURM_PROCID", "1", 1);
  ::setenv("SLURM_STEP_ID", "0", 1);
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  ::setenv("SLURM_STEP_NODELIST", "n[3-4]", 1);
  ::setenv("SLURM_JOB_ID", "7", 1);
}

TEST_F(JobTest, SlurmProvidesTheMeetingAddress) {
  set_slurms_step();
  const Job job = job_from_environment();
  EXPECT_EQ(job.source, "Slurm");
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(meeting_place(job), "n3:15007");
  EXPECT_FALSE(job.token_by_rendezvous);
}

TEST_F(JobTest, OptionsOverrideTheMeetingAddress) {
  set_slurms_step();
  set("MASTER_PORT", "1234");
  EXPECT_EQ(meeting_place(job_from_environment()), "n3:1234");
  set("MASTER_ADDR", "n9-ib");
  EXPECT_EQ(meeting_place(job_from_environment()), "n9-ib:1234");
  ::unsetenv("MASTER_PORT");
  EXPECT_EQ(meeting_place(job_from_environment()), "n9-ib:15007");
  settings().set("TUTTI_RENDEZVOUS", "file:/shared/meet");
  EXPECT_EQ(meeting_place(job_from_environment()), "the rendezvous file /shared/meet");
}

TEST_F(JobTest, AnAddressMakesTheLaunchersStoreUnnecessary) {
  set("PMI_RANK", "1");
  set("PMI_SIZE", "2");
  set("PMI_FD", "99999");
  EXPECT_THAT(failure(), AllOf(HasSubstr("PMI (PMI_FD) is unusable"), HasSubstr("MASTER_ADDR")));
  set("MASTER_ADDR", "10.0.0.1");
  EXPECT_THAT(failure(), HasSubstr("MASTER_ADDR is set, but MASTER_PORT is not"));
  set("MASTER_PORT", "1234");
  EXPECT_EQ(meeting_place(job_from_environment()), "10.0.0.1:1234");
}

TEST_F(JobTest, KubernetesNeedsAnAddress) {
  set("JOB_COMPLETION_INDEX", "1");
  set("WORLD_SIZE", "2");
  EXPECT_THAT(failure(), HasSubstr("WORLD_SIZE is set, but MASTER_ADDR is not"));
  set("MASTER_ADDR", "job-0.svc");
  set("MASTER_PORT", "1234");
  EXPECT_EQ(job_from_environment().rank, 1);
}

TEST_F(JobTest, TheLauncherMaySetTheDomain) {
  EXPECT_EQ(job_from_environment().domain, Domain{});
  settings().set("TUTTI_DOMAIN", "numa:1,cache:3");
  EXPECT_EQ(job_from_environment().domain, (Domain{.numa_node = 1, .cache = 3}));
  settings().set("TUTTI_DOMAIN", "upstairs");
  EXPECT_THAT(failure(), HasSubstr("invalid location TUTTI_DOMAIN='upstairs'"));
}

TEST_F(JobTest, SlurmOrTheUserSetsTheRack) {
  EXPECT_EQ(job_from_environment().rack, "");
  set("SLURM_TOPOLOGY_ADDR", "s0.s4.s8.tux1");
  EXPECT_EQ(job_from_environment().rack, "") << "which of these are switches is not known";
  set("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.switch.node");
  EXPECT_EQ(job_from_environment().rack, "s0.s4.s8");
  settings().set("TUTTI_RACK", "row1.rack2");
  EXPECT_EQ(job_from_environment().rack, "row1.rack2");
  for (const std::string wrong : {"row1..rack2", ".", "rack 2", "rack\033[2J"}) {
    settings().set("TUTTI_RACK", wrong);
    EXPECT_THAT(failure(), HasSubstr("invalid rack"));
  }
}

TEST_F(JobTest, TorchrunsStoreKeepsItsPort) {
  set_ranks(0, 2);
  set("TORCHELASTIC_RUN_ID", "none");
  const Job job = job_from_environment();
  EXPECT_EQ(job.master_port, 29501);
  EXPECT_EQ(meeting_place(job), "10.0.0.1:29501-29508") << "others may have some of these";
  set("MASTER_PORT", "65530");
  EXPECT_EQ(meeting_place(job_from_environment()), "10.0.0.1:65531-65535");
  set("MASTER_PORT", "65535");
  EXPECT_THAT(failure(), HasSubstr("MASTER_PORT='65535' is not a whole number from 1 to 65534"));
}

TEST_F(JobTest, TheFirstInterfaceIsUsedForTheBootstrap) {
  EXPECT_EQ(job_from_environment().interface, "");
  settings().set("TUTTI_INTERFACE", "eth0");
  EXPECT_EQ(job_from_environment().interface, "eth0");
  EXPECT_THAT(job_from_environment().more_interfaces, IsEmpty());
  settings().set("TUTTI_INTERFACE", "eth0,10.0.1.1,fd00::1");
  EXPECT_EQ(job_from_environment().interface, "eth0");
  EXPECT_THAT(job_from_environment().more_interfaces, ElementsAre("10.0.1.1", "fd00::1"));
  settings().set("TUTTI_INTERFACE", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p");
  EXPECT_THAT(failure(), AllOf(HasSubstr("names 16 interfaces"), HasSubstr("at most 15")));
}

TEST_F(JobTest, WrongVariablesAreNamed) {
  set_ranks(4, 4);
  EXPECT_THAT(failure(), HasSubstr("RANK='4' is not a whole number from 0 to 3"));
  set_ranks(0, 4);
  set("WORLD_SIZE", "four");
  EXPECT_THAT(failure(), HasSubstr("WORLD_SIZE='four'"));
  ::unsetenv("WORLD_SIZE");
  EXPECT_THAT(failure(), HasSubstr("RANK is set, but WORLD_SIZE is not"));
  set_ranks(0, 4);
  ::unsetenv("MASTER_PORT");
  EXPECT_THAT(failure(), HasSubstr("WORLD_SIZE is set, but MASTER_PORT is not"));
  set("MASTER_PORT", "70000");
  EXPECT_THAT(failure(), HasSubstr("MASTER_PORT='70000'"));
}

TEST_F(JobTest, TheLauncherProvidesTheLocalRank) {
  set_ranks(1, 4);
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "2");
  EXPECT_EQ(job_from_environment().local_rank, 1);
  EXPECT_EQ(job_from_environment().local_size, 2);
  const auto known = [](int rank, int size) {
    return job_from_environment(
        {.rank = rank, .size = size, .master_address = "10.0.0.2", .master_port = uint16_t{1}});
  };
  EXPECT_EQ(known(1, 4).local_size, 2) << "it is the launcher's job that the caller knows";
  EXPECT_EQ(known(1, 3).local_size, std::nullopt);
  EXPECT_EQ(known(0, 4).local_rank, std::nullopt);
}

// Some of the variables may have been set for another purpose.
TEST_F(JobTest, GivenValuesAreNotReadFromTheEnvironment) {
  set("WORLD_SIZE", "7");
  set("MASTER_PORT", "nonsense");
  const Job job = job_from_environment(
      {.rank = 1, .size = 3, .master_address = "10.0.0.2", .master_port = uint16_t{1234}});
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 3);
  EXPECT_EQ(job.master_address, "10.0.0.2");
  EXPECT_EQ(job.master_port, 1234);
  settings().set("TUTTI_RENDEZVOUS", "file:/shared/meet");
  EXPECT_EQ(job_from_environment(
                {.rank = 1, .size = 3, .master_address = "10.0.0.2", .master_port = uint16_t{1234}})
                .rendezvous_file,
            "");
  EXPECT_EQ(
      job_from_environment({.rank = 1, .size = 3, .rendezvous_file = "/mine"}).rendezvous_file,
      "/mine");
}

TEST_F(JobTest, MissingValuesAreReadFromTheEnvironment) {
  set_ranks(0, 7);
  set("TORCHELASTIC_RUN_ID", "none");
  const Job job = job_from_environment({.rank = 1, .size = 3});
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 3);
  EXPECT_EQ(job.master_address, "10.0.0.1");
  EXPECT_EQ(job.master_port, 29501);
  EXPECT_EQ(job.master_ports, 1) << "several such jobs could not tell their ranks 0 apart";
  ::unsetenv("MASTER_ADDR");
  try {
    job_from_environment({.rank = 1, .size = 3});
    ADD_FAILURE() << "it has no address";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the number of ranks is set, but MASTER_ADDR is not"));
  }
}

TEST_F(JobTest, RendezvousFileTakesThePlaceOfTheAddress) {
  set_ranks(0, 2);
  ::unsetenv("MASTER_ADDR");
  settings().set("TUTTI_RENDEZVOUS", "file:/shared/meet");
  EXPECT_EQ(job_from_environment().rendezvous_file, "/shared/meet");
  settings().set("TUTTI_RENDEZVOUS", "/shared/meet");
  EXPECT_THAT(failure(), HasSubstr("is not file:/PATH"));
}

TEST_F(JobTest, TokenFileMustBePrivate) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / cat("token-", ::getpid());
  std::ofstream(path) << "a token from the file\n";
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  settings().set("TUTTI_TOKEN_FILE", path);
  EXPECT_THAT(failure(), AllOf(HasSubstr(path), HasSubstr("mode 0644, not 0600")));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(job_from_environment().token, "a token from the file");
  settings().set("TUTTI_TOKEN", kToken);
  EXPECT_EQ(job_from_environment().token, kToken);
  std::filesystem::remove(path);
}

TEST_F(JobTest, TokensThatCanBeGuessedAreRefused) {
  for (const std::string token :
       {"secret", "0123456789abcdef0123456789abcde", "only_letters_of_base6", "fifteen bytes -"}) {
    settings().set("TUTTI_TOKEN", token);
    EXPECT_THAT(failure(),
                AllOf(HasSubstr("at least 128 are required"), HasSubstr("openssl rand -hex 16"),
                      HasSubstr("tutti run"), Not(HasSubstr(token))));
  }
  for (const std::string token :
       {"0123456789abcdef0123456789abcdef", "only_letters_of_base64", "sixteen bytes ->"}) {
    settings().set("TUTTI_TOKEN", token);
    EXPECT_EQ(job_from_environment().token, token);
  }
  settings().set("TUTTI_TOKEN", "secret");
  settings().set("TUTTI_ALLOW_SHORT_TOKEN", "1");
  EXPECT_EQ(job_from_environment().token, "secret");
}

TEST_F(JobTest, InheritedDescriptorsAreClosedOnExec) {
  set_ranks(1, 2);
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  settings().set("TUTTI_LAUNCHER_FD", cat(read_end.get()));
  EXPECT_EQ(job_from_environment().launcher_fd, read_end.get());
  EXPECT_EQ(::fcntl(read_end.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  settings().set("TUTTI_LAUNCHER_FD", "99999");
  EXPECT_EQ(job_from_environment().launcher_fd, -1);
}

}  // namespace
}  // namespace tutti
