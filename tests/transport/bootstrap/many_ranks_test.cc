// Hundreds of ranks find each other, call and leave; rank 0 has few descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <span>
#include <vector>

#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "transport/bootstrap/init_stats.h"

namespace tutti::testing {
namespace {

constexpr int kRanks = 512;
constexpr int kMostHeld = 32;
// Of rank 0: for its children, those that it holds, and those in the handshake. Far fewer than
// there are ranks.
constexpr rlim_t kDescriptors = 200;
constexpr std::chrono::minutes kInitTimeout{4};

void call_once(const Job& job) {
  Communicator world = Communicator::init(job);
  std::vector<int> sum = {job.rank};
  world.all_reduce(std::span(sum));
  if (sum[0] != kRanks * (kRanks - 1) / 2) throw Error(ErrorCode::internal, cat("sum ", sum[0]));
  if (job.rank != 0) return;

  const InitStats& stats = world.init_stats();
  std::printf("%d ranks in %.1f s; all ranks sent %lu messages, %lu bytes; rank 0 held %d\n",
              kRanks, stats.seconds, static_cast<unsigned long>(stats.all.messages),
              static_cast<unsigned long>(stats.all.bytes), stats.most_held);
  std::fflush(stdout);
  // First connections: a handshake of three, arrival and release. Links: a handshake and the
  // table, which is each one's only message that grows with the job.
  EXPECT_LE(stats.all.messages, 9 * (kRanks - 1));
  EXPECT_LE(stats.all.bytes, kRanks * (kRanks * 120 + 2000));
  EXPECT_LE(stats.most_held, job.fanout + kMostHeld);
}

pid_t start(const Job& job) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  bool good = true;
  try {
    if (job.rank == 0) {
      const rlimit limit{.rlim_cur = kDescriptors, .rlim_max = kDescriptors};
      good = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
    }
    call_once(job);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank, error.what());
    good = false;
  }
  ::_exit(good && !::testing::Test::HasFailure() ? 0 : 1);
}

TEST(ManyRanks, FindEachOtherThroughARankZeroOfFewDescriptors) {
  LocalRendezvous rendezvous;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kRanks; ++rank) {
    Job job = rendezvous.job(rank, kRanks);
    job.init_timeout = kInitTimeout;
    job.most_held = kMostHeld;
    pids.push_back(start(job));
    ASSERT_GT(pids.back(), 0);
    if (rank == 0) Fd(job.listen_fd).reset();
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(pids[rank], &status, 0), pids[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

}  // namespace
}  // namespace tutti::testing
