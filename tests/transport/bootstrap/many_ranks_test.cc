// Tests hundreds of ranks that meet, make a call and leave, while rank 0 has few descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::testing {
namespace {

constexpr int kRanks = 512;
constexpr int kMostHeld = 32;
// Descriptor limit of rank 0. It suffices for its children, for the ranks that it holds and for
// those in the handshake, but is far below the number of ranks.
constexpr rlim_t kDescriptors = 200;
constexpr std::chrono::minutes kInitTimeout{4};

// A barrier of processes, implemented by a pipe: wait() returns when each process has called it or
// has ended. With few cores, the last process runs long after the first one has its result.
class Finish {
 public:
  Finish() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("pipe", errno);
    read_end_ = Fd(ends[0]);
    write_end_ = Fd(ends[1]);
  }
  void wait() {
    write_end_.reset();
    char nothing = 0;
    [[maybe_unused]] const ssize_t got = ::read(read_end_.get(), &nothing, 1);
  }
  void watch_only() { write_end_.reset(); }

 private:
  Fd read_end_;
  Fd write_end_;
};

void expect_few_messages(const InitStats& stats, const Job& job) {
  std::printf("%d ranks in %.1f s; all ranks sent %lu messages, %lu bytes; rank 0 held %d\n",
              kRanks, stats.seconds, static_cast<unsigned long>(stats.all.messages),
              static_cast<unsigned long>(stats.all.bytes), stats.most_held);
  std::fflush(stdout);
  // The first connection of a rank carries five messages: three of the handshake, its arrival and
  // its release. Its link also carries five: three of the handshake, the table, and a confirmation.
  // Only the table grows with the job.
  EXPECT_LE(stats.all.messages, 10 * (kRanks - 1));
  EXPECT_LE(stats.all.bytes, kRanks * (kRanks * 50 + 2000));
  EXPECT_LE(stats.most_held, job.fanout + kMostHeld);
}

using Body = void (*)(const Job& job, Finish& finish);

pid_t start(const Job& job, Finish& finish, Body body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  bool good = true;
  try {
    body(job, finish);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank, error.what());
    good = false;
  }
  ::_exit(good && !::testing::Test::HasFailure() ? 0 : 1);
}

void run_processes(Body body) {
  LocalRendezvous rendezvous;
  Finish finish;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kRanks; ++rank) {
    Job job = rendezvous.job(rank, kRanks);
    job.init_timeout = kInitTimeout;
    job.most_held = kMostHeld;
    pids.push_back(start(job, finish, body));
    ASSERT_GT(pids.back(), 0);
    if (rank == 0) Fd(job.listen_fd).reset();
  }
  finish.watch_only();
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(pids[rank], &status, 0), pids[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

TEST(ManyRanks, FindEachOtherThroughARankZeroOfFewDescriptors) {
  run_processes([](const Job& job, Finish& finish) {
    if (job.rank == 0) {
      const rlimit limit{.rlim_cur = kDescriptors, .rlim_max = kDescriptors};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw system_error("setrlimit", errno);
    }
    const std::shared_ptr<Control> control = Control::connect(job);
    finish.wait();
    if (job.rank == 0) expect_few_messages(control->init_stats(), job);
  });
}

TEST(ManyRanks, CallAndLeave) {
  run_processes([](const Job& job, Finish& finish) {
    Communicator world = Communicator::init(job);
    std::vector<int> sum = {job.rank};
    world.all_reduce(std::span(sum));
    finish.wait();
    if (sum[0] != kRanks * (kRanks - 1) / 2) throw Error(ErrorCode::internal, cat("sum ", sum[0]));
    if (job.rank == 0) expect_few_messages(world.init_stats(), job);
  });
}

}  // namespace
}  // namespace tutti::testing
