// Tests which threads make progress, and what waiting costs.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::run_ranks;

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Progress : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override {
    settings().set("TUTTI_TRANSPORT", "auto");
    settings().set("TUTTI_PROGRESS_THREAD", "0");
  }
};

INSTANTIATE_TEST_SUITE_P(Both, Progress, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

// Measures the processor time of rank 0 while it waits in `call` and rank 1 is busy for a second.
// Uses the minimum of several runs, because other programs slow a run down.
void expect_cheap(Communicator& comm, const std::function<void()>& call) {
  constexpr int kTries = 3;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    comm.barrier();
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    const double before = thread_cpu_seconds();
    call();
    least = std::min(least, thread_cpu_seconds() - before);
  }
  if (comm.rank() == 0) {
    EXPECT_LT(least, 0.02);
  }
}

TEST_P(Progress, WaitingForABusyPeerCostsNextToNothing) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    expect_cheap(comm, [&] { comm.barrier(); });
  });
}

TEST_P(Progress, WaitingForOneOfTwoCommunicatorsCostsNextToNothing) {
  run_ranks(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator other = world.duplicate();
    other.barrier();
    expect_cheap(world, [&] {
      Work work = other.barrier_async();
      world.barrier();
      work.wait();
    });
  });
}

TEST_P(Progress, WaitingCostsNextToNothingAfterAnAbortedCall) {
  run_ranks(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator other = world.duplicate();
    std::vector<int32_t> values(4, 1);
    const Buffer buffer = buffer_of(std::span(values));
    other.all_reduce(as_const(buffer), buffer);
    if (world.rank() == 1) {
      // The mismatched message has arrived when rank 0 makes its call.
      Work wrong = other.all_reduce_async(as_const(buffer), buffer, ReduceOp::max);
      world.barrier();
      EXPECT_THROW(wrong.wait(), Error);
    } else {
      world.barrier();
      EXPECT_THROW(other.all_reduce(as_const(buffer), buffer), Error);
    }
    expect_cheap(world, [&] { world.barrier(); });
  });
}

// Each of two threads waits on its own communicator. One of them sleeps for both.
TEST_P(Progress, ThreadsThatSleepWakeEachOther) {
  constexpr int kTurns = 40;
  run_ranks(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<Communicator> comms;
    for (int i = 0; i < 2; ++i) comms.push_back(world.duplicate());
    const auto take_part = [&](int thread) {
      for (int turn = 0; turn < kTurns; ++turn) {
        // One of the ranks is late, so that the other one sleeps.
        if ((turn + thread) % 2 == comms[thread].rank()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
        int64_t one = 1;
        comms[thread].all_reduce(std::span(&one, 1));
        ASSERT_EQ(one, 2);
      }
    };
    std::thread second(take_part, 1);
    take_part(0);
    second.join();
  });
}

// Neither rank tests or waits for the call before it sees the result.
TEST_P(Progress, TheThreadProgressesCallsThatNobodyWaitsFor) {
  settings().set("TUTTI_PROGRESS_THREAD", "1");
  run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> input(1 << 20, 1);
    std::vector<float> output(input.size(), 0);
    for (int turn = 0; turn < 3; ++turn) {
      std::ranges::fill(output, 0);
      Work work = comm.all_reduce_async({input.data(), input.size(), DType::f32},
                                        {output.data(), output.size(), DType::f32});
      const volatile float* const last = &output.back();
      while (*last != 2) std::this_thread::yield();
      work.wait();
      EXPECT_EQ(output.front(), 2);
    }
    // The communicator can be destroyed while the progress thread is idle.
  });
}

TEST_P(Progress, TheThreadAndWaitersShareManyCalls) {
  settings().set("TUTTI_PROGRESS_THREAD", "1");
  run_ranks(3, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Communicator other = comm.duplicate();
    for (int turn = 0; turn < 200; ++turn) {
      std::vector<int64_t> a(1000, turn);
      std::vector<int64_t> b(50'000, comm.rank());
      const Buffer first = buffer_of(std::span(a));
      const Buffer second = buffer_of(std::span(b));
      Work one = comm.all_reduce_async(as_const(first), first);
      Work two = other.all_reduce_async(as_const(second), second);
      two.wait();
      one.wait();
      ASSERT_EQ(a.back(), 3 * turn);
      ASSERT_EQ(b.back(), 3);
    }
  });
}

}  // namespace
}  // namespace tutti
