// Tests the consequences of a death in a chain of three ranks. A rank dies. A second one, which
// communicated with it, fails for that reason, in any of the ways in which programs end. A third
// one, which communicated only with the second, must report the original death. Ranks are
// processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 4;
constexpr int kKilled = 1;
constexpr int kSecond = 2;
constexpr int kThird = 3;

enum class End { unwinds, returns, aborts };

struct Outcome {
  pid_t pid = 0;
  std::string text;  // the error that the rank has printed
};

// Waits for a message of `peer` that is never sent. When rank 1 dies, the other ranks wait, or are
// about to.
void wait_for(Communicator& communicator, int peer) {
  int32_t value = 0;
  communicator.recv({&value, 1, DType::i32}, peer);
}

void live(Communicator& world, End end) {
  const int rank = world.rank();
  Communicator first = world.split(rank == kKilled || rank == kSecond ? 0 : -1, rank);
  Communicator second = world.split(rank == kSecond || rank == kThird ? 0 : -1, rank);
  world.barrier();
  if (rank == kKilled) ::raise(SIGKILL);
  if (rank == 0) wait_for(world, kKilled);
  if (rank == kThird) wait_for(second, 0);
  try {
    wait_for(first, 0);
  } catch (const Error&) {
    if (end == End::unwinds) throw;
    if (end == End::aborts) ::raise(SIGABRT);
  }
}

[[noreturn]] void be_rank(const Job& job, End end, int report) {
  std::string text;
  try {
    settings().set("TUTTI_LOG", "error");
    Communicator world = Communicator::init(job);
    live(world, end);
  } catch (const std::exception& error) {
    text = error.what();
  }
  [[maybe_unused]] const ssize_t written = ::write(report, text.data(), text.size());
  ::_exit(text.empty() ? 0 : 1);
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t n = 0; (n = ::read(fd, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(n));
  }
  return text;
}

std::vector<Outcome> run_processes(End end, const std::string& transport) {
  testing::LocalRendezvous rendezvous;
  std::vector<Outcome> outcomes(kRanks);
  std::vector<int> reports(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    outcomes[r].pid = ::fork();
    if (outcomes[r].pid == 0) {
      ::close(ends[0]);
      settings().set("TUTTI_TRANSPORT", transport);
      const Job job = rendezvous.job(r, kRanks);
      if (r != 0) ::close(rendezvous.release_listener());
      be_rank(job, end, ends[1]);
    }
    ::close(ends[1]);
    reports[r] = ends[0];
  }
  ::close(rendezvous.release_listener());
  for (int r = 0; r < kRanks; ++r) {
    outcomes[r].text = read_all(reports[r]);
    ::close(reports[r]);
    ::waitpid(outcomes[r].pid, nullptr, 0);
  }
  return outcomes;
}

std::string name(End end) {
  if (end == End::unwinds) return "unwinds";
  return end == End::returns ? "returns" : "aborts";
}

class Chain : public ::testing::TestWithParam<std::tuple<End, std::string>> {};

INSTANTIATE_TEST_SUITE_P(All, Chain,
                         ::testing::Combine(::testing::Values(End::unwinds, End::returns,
                                                              End::aborts),
                                            ::testing::Values("shm", "tcp")),
                         [](const auto& info) {
                           return cat(name(std::get<0>(info.param)), "_", std::get<1>(info.param));
                         });

TEST_P(Chain, ADeathIsReportedWithTheDeadRank) {
  const auto& [end, transport] = GetParam();
  const std::vector<Outcome> outcomes = run_processes(end, transport);
  const std::string dead = cat("rank ", kKilled, " (");
  const std::string pid = cat("pid ", outcomes[kKilled].pid, ") vanished");
  for (const int r : {0, kThird}) {
    EXPECT_THAT(outcomes[r].text, AllOf(HasSubstr(dead), HasSubstr(pid))) << "rank " << r;
    EXPECT_THAT(outcomes[r].text, Not(HasSubstr(cat("rank ", kSecond, " (")))) << "rank " << r;
  }
}

// Ranks 0 and 1 make mismatched calls. Rank 2 communicates only with rank 1.
TEST(Consequence, AMismatchIsReportedToUninvolvedRanks) {
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator world = Communicator::init(job);
    const int rank = world.rank();
    Communicator first = world.split(rank <= 1 ? 0 : -1, rank);
    Communicator second = world.split(rank >= 1 ? 0 : -1, rank);
    if (rank == 2) wait_for(second, 0);
    std::vector<float> values(static_cast<size_t>(rank) + 1);
    first.all_reduce(std::span(values));
  });
  ASSERT_TRUE(errors[2].has_value());
  EXPECT_THAT(
      errors[2]->what(),
      AllOf(HasSubstr("rank 1 ("),
            HasSubstr("failed and left the communicator; likely cause: collective mismatch")));
}

// Rank 0 runs `fails`, and rank 1 waits in a barrier. Returns what both print to stderr.
std::string said_when_rank_0(const std::function<void(Communicator&)>& fails) {
  ::testing::internal::CaptureStderr();
  testing::run_ranks_catching(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    world.barrier();
    if (world.rank() == 0) fails(world);
    world.barrier();
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(LastCalls, LastCallsAreReportedIfTheyHelp) {
  const std::string own =
      said_when_rank_0([](Communicator&) { throw std::runtime_error("a file is missing"); });
  EXPECT_EQ(own, "");
  const std::string mismatch = said_when_rank_0([](Communicator& world) {
    float value = 0;
    world.all_reduce(std::span(&value, 1));
  });
  EXPECT_THAT(mismatch, HasSubstr("its last calls were:\n  call 1: barrier"));
}

}  // namespace
}  // namespace tutti
