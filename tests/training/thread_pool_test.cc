#include "training/core/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <set>
#include <stdexcept>
#include <vector>

namespace tutti::training {
namespace {

TEST(ThreadPoolTest, EachPartIsDoneOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    const UseThreads use(pool);
    EXPECT_EQ(threads_here(), threads);
    for (int64_t parts = 0; parts < 200; ++parts) {
      std::vector<int> done(static_cast<size_t>(parts));  // each element is written by one thread
      parallel_for(parts, [&](int64_t part) { ++done[static_cast<size_t>(part)]; });
      EXPECT_EQ(done, std::vector<int>(static_cast<size_t>(parts), 1));
    }
  }
}

TEST(ThreadPoolTest, RangesMakeUpTheWhole) {
  ThreadPool pool(3);
  const UseThreads use(pool);
  for (const int64_t size : {0, 1, 9, 10, 11, 100}) {
    std::vector<int> done(static_cast<size_t>(size));
    parallel_ranges(size, 10, [&](int64_t first, int64_t count) {
      EXPECT_LE(count, 10);
      for (int64_t i = first; i < first + count; ++i) ++done[static_cast<size_t>(i)];
    });
    EXPECT_EQ(done, std::vector<int>(static_cast<size_t>(size), 1));
  }
}

// Each part waits until all other parts have begun, so that every call needs all threads.
TEST(ThreadPoolTest, PartsRunConcurrently) {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  const UseThreads use(pool);
  std::barrier meeting(kThreads);
  for (int call = 0; call < 50; ++call) {
    std::vector<int> indices(kThreads);
    parallel_for(kThreads, [&](int64_t part) {
      meeting.arrive_and_wait();
      indices[static_cast<size_t>(part)] = ThreadPool::thread_index();
    });
    EXPECT_EQ(std::set<int>(indices.begin(), indices.end()), (std::set<int>{0, 1, 2}));
  }
}

TEST(ThreadPoolTest, WithoutAPoolPartsAreInOrder) {
  std::vector<int64_t> done;
  parallel_for(5, [&](int64_t part) { done.push_back(part); });
  EXPECT_EQ(done, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(threads_here(), 1);
}

TEST(ThreadPoolTest, WithinAPartCallsAreSerial) {
  ThreadPool pool(2);
  const UseThreads use(pool);
  std::vector<std::vector<int64_t>> done(8);
  parallel_for(8, [&](int64_t part) {
    EXPECT_EQ(threads_here(), 1);
    parallel_for(3, [&](int64_t inner) { done[static_cast<size_t>(part)].push_back(inner); });
  });
  EXPECT_EQ(done, std::vector<std::vector<int64_t>>(8, {0, 1, 2}));
  EXPECT_EQ(threads_here(), 2);
}

TEST(ThreadPoolTest, TheCallerGetsTheExceptionOfAPart) {
  ThreadPool pool(2);
  const UseThreads use(pool);
  for (int call = 0; call < 20; ++call) {
    std::atomic<int> done = 0;
    EXPECT_THROW(parallel_for(10,
                              [&](int64_t part) {
                                ++done;
                                if (part == call % 10) throw std::runtime_error("broken");
                              }),
                 std::runtime_error);
    EXPECT_EQ(done, 10);
  }
  parallel_for(3, [](int64_t) {});
}

TEST(ThreadPoolTest, PoolsOfTwoThreadsDoNotMix) {
  const auto rank = [] {
    ThreadPool pool(2);
    const UseThreads use(pool);
    for (int call = 0; call < 200; ++call) {
      int64_t sum = 0;
      std::vector<int64_t> terms(16);
      parallel_for(16, [&](int64_t part) { terms[static_cast<size_t>(part)] = part; });
      for (const int64_t term : terms) sum += term;
      EXPECT_EQ(sum, 120);
    }
  };
  std::thread other(rank);
  rank();
  other.join();
}

// A child process of fork() has no helper threads, so that it computes all parts itself.
TEST(ThreadPoolTest, AChildOfForkComputesAlone) {
  ThreadPool pool(3);
  const UseThreads use(pool);
  parallel_for(10, [](int64_t) {});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int done = 0;
    parallel_for(10, [&](int64_t) { ++done; });
    ::_exit(done == 10 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace tutti::training
