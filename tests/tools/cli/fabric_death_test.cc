// Tests jobs over fabrics in which a rank is killed or stopped, or connections break. They must end
// like jobs over TCP, which are included for comparison.
//
//   DEATHS=N in the environment: number of deaths of each kind (default: 1).
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "tests/support/fabrics.h"
#include "tests/tools/cli/deaths.h"

namespace tutti::tool {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kRanks = 3;

int deaths() {
  const char* const text = std::getenv("DEATHS");
  return text != nullptr ? std::atoi(text) : 1;
}

std::string name_of(int socket, int (*call)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (call(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "";
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return "";
  return {reinterpret_cast<const char*>(&address), bytes};
}

// Returns the connected sockets of a process by both ends' addresses.
std::map<std::pair<std::string, std::string>, Fd> connections_of(pid_t pid) {
  std::map<std::pair<std::string, std::string>, Fd> found;
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  for (const auto& entry : std::filesystem::directory_iterator(cat("/proc/", pid, "/fd"))) {
    const int number = std::atoi(entry.path().filename().c_str());
    Fd copy(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
    if (!copy) continue;
    const std::string peer = name_of(copy.get(), ::getpeername);
    if (!peer.empty()) found[{name_of(copy.get(), ::getsockname), peer}] = std::move(copy);
  }
  return found;
}

class FabricDeath : public Deaths, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    const std::string problem = testing::lacks(GetParam());
    if (!problem.empty()) GTEST_SKIP() << problem;
  }

  // The first line of the training reports that a tenth is done, so the ranks are connected. While
  // they connect, UCX 1.13 may terminate them itself (transport/README.md).
  Words endless_training() const {
    return {"train",   "--data", write_text(), "--ranks", cat(kRanks),
            "--steps", "2000",   "--hidden",   "64"};
  }
  static Process::Environment over_fabric(const std::string& seconds) {
    return {{"TUTTI_TRANSPORT", GetParam()}, {"TUTTI_TIMEOUT", seconds}};
  }
};

INSTANTIATE_TEST_SUITE_P(Over, FabricDeath, ::testing::Values("tcp", "ucx", "ofi"),
                         [](const auto& info) { return info.param; });

TEST_P(FabricDeath, KilledRankEndsTheJob) {
  for (int round = 0; round < deaths(); ++round) {
    SCOPED_TRACE(cat("round ", round));
    Process job = start(endless_training(), over_fabric("30"));
    ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "a tenth is done";
    expect_a_clear_end(job, kRanks, round % kRanks);
    if (HasFailure()) return;
  }
}

// The rank is stopped as by a debugger, or as on a machine that swaps.
TEST_P(FabricDeath, StoppedRankEndsTheJob) {
  for (int round = 0; round < deaths(); ++round) {
    SCOPED_TRACE(cat("round ", round));
    const int rank = round % kRanks;
    Process job = start(endless_bench(kRanks, GetParam(), round % 2 == 0 ? "64K" : "4M"),
                        {{"TUTTI_TIMEOUT", "3"}});
    ASSERT_THAT(job.read_lines(2), SizeIs(2)) << "the header";
    const pid_t pid = process_of_rank(rank);
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGSTOP);
    const Result result = job.finish(std::chrono::seconds(3) + kEndsWithin);
    EXPECT_EQ(result.code, 1);
    Words said = said_of(result, pid);
    // The stopped rank continues afterwards and may also report that it waited.
    std::erase_if(said, [&](const std::string& line) {
      return line.starts_with(cat("tutti: rank ", rank, " ("));
    });
    EXPECT_GE(said.size(), static_cast<size_t>(kRanks - 1)) << result.err;
    EXPECT_THAT(said, Each(HasSubstr(" timed out after 3 s in ")));
    EXPECT_THAT(said,
                Each(ContainsRegex(cat("(waiting for|is reached through) rank ", rank,
                                       " \\([^,]*, pid ", pid, "\\), which does not answer"))))
        << result.err;
    if (HasFailure()) return;
  }
}

// Breaks the fabric's connections between ranks 1 and 2, whose control messages pass through rank
// 0.
TEST_P(FabricDeath, BrokenConnectionEndsTheJob) {
  if (GetParam() == "ofi") {
    GTEST_SKIP() << "libfabric's provider for sockets may connect again, and the job goes on";
  }
  for (int round = 0; round < deaths(); ++round) {
    SCOPED_TRACE(cat("round ", round));
    Process job = start(endless_training(), over_fabric("10"));
    ASSERT_THAT(job.read_lines(1), SizeIs(1)) << "a tenth is done";
    auto of_1 = connections_of(process_of_rank(1));
    int broken = 0;
    for (const auto& [ends, socket] : connections_of(process_of_rank(2))) {
      if (!of_1.contains({ends.second, ends.first})) continue;
      broken += ::shutdown(socket.get(), SHUT_RDWR) == 0 ? 1 : 0;
    }
    ASSERT_GT(broken, 0);
    of_1.clear();
    const Result result = job.finish();
    EXPECT_EQ(result.code, 1);
    Words said;
    for (const std::string& line : split(result.err, '\n')) {
      if (line.starts_with("tutti: ")) said.push_back(line);
    }
    EXPECT_GE(said.size(), static_cast<size_t>(kRanks))
        << result.err;  // the launcher may repeat one of these lines
    EXPECT_THAT(said, Each(ContainsRegex("rank [12] \\("))) << result.err;
    EXPECT_THAT(said, Each(HasSubstr("connection"))) << result.err;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tutti::tool
