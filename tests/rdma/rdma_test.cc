// Tests UCX and libfabric over InfiniBand verbs between two hosts, h1 and h2.
//
// TUTTI_RDMA_RUN is a command that runs its arguments where such hosts h1 and h2 exist (see
// on_two_hosts.sh). If it is not set, the test uses an emulator beside the repository, if there is
// one. TUTTI_RDMA_LINK is the network interface of h2 that the test may take down.
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/process.h"
#include "tests/support/test_data.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kPatience(12);

struct Fabric {
  const char* name;
  std::string transport;
  std::string settings;
};

// Returns the command that runs its arguments on two hosts, or an empty list if there is none.
std::vector<std::string> two_hosts() {
  if (const char* const command = std::getenv("TUTTI_RDMA_RUN")) return split(command, ' ');
  const fs::path emulator = testing::test_data("") / ".." / "soft_roce_vm";
  if (!fs::exists(emulator) || ::getuid() != 0) return {};
  return {fs::canonical(emulator), "run"};
}

// Copies a program and its shared libraries into `folder`, except libraries that every host has.
void stage(const std::string& program, const fs::path& folder) {
  fs::create_directories(folder / "lib");
  fs::copy_file(program, folder / fs::path(program).filename());
  const testing::Result linked = testing::Process({"ldd", program}).finish();
  for (const std::string& line : split(linked.out, '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    for (const std::string& word : words) {
      const std::string name = fs::path(word).filename();
      if (!word.starts_with("/") || name.starts_with("libc.so") || name.starts_with("libm.so"))
        continue;
      if (name.starts_with("ld-linux")) continue;
      fs::copy_file(word, folder / "lib" / name, fs::copy_options::overwrite_existing);
    }
  }
}

void PrintTo(const Fabric& fabric, std::ostream* out) { *out << fabric.settings; }

class Rdma : public ::testing::TestWithParam<Fabric> {};
INSTANTIATE_TEST_SUITE_P(All, Rdma,
                         ::testing::Values(Fabric{"rc_verbs", "ucx", "UCX_TLS=rc_v,self"},
                                           Fabric{"ud_verbs", "ucx", "UCX_TLS=ud_v,self"},
                                           Fabric{"verbs_ofi_rxm", "ofi",
                                                  "FI_PROVIDER=verbs;ofi_rxm"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Rdma, TwoHosts) {
  std::vector<std::string> command = two_hosts();
  if (command.empty()) {
    GTEST_SKIP() << "no two hosts with InfiniBand verbs: set TUTTI_RDMA_RUN to a command that runs "
                    "its arguments where h1 and h2 are two";
  }
  const fs::path folder = fs::path(::testing::TempDir()) / cat("rdma-", ::getpid());
  fs::remove_all(folder);
  stage("tools/tutti", folder);
  stage("tests/rdma/random_calls", folder);
  fs::copy_file("tests/rdma/on_two_hosts.sh", folder / "on_two_hosts.sh");
  const char* const own_hosts = std::getenv("TUTTI_RDMA_RUN");
  const char* const named_link = std::getenv("TUTTI_RDMA_LINK");
  std::string link = named_link != nullptr ? named_link : own_hosts != nullptr ? "" : "e2";
  // UCX 1.13 aborts the process (SIGABRT) if a link that is down returns its datagrams.
  if (GetParam().settings.find("ud_v") != std::string::npos) link.clear();
  command.insert(command.end(), {"bash", folder / "on_two_hosts.sh", folder, GetParam().transport,
                                 GetParam().settings, cat("TUTTI_RDMA_LINK=", link)});
  const passwd* const user = ::getpwuid(::getuid());
  const testing::Result result =
      testing::Process(command, {{"HOME", user != nullptr ? user->pw_dir : "/"},
                                 {"SOFT_ROCE_SHARE", folder},
                                 {"SOFT_ROCE_MEM", "2048"},
                                 {"SOFT_ROCE_CPUS", "2"},
                                 {"SOFT_ROCE_TIMEOUT", "700"}})
          .finish(kPatience);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tutti
