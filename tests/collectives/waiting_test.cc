// Tests how polls and waits end if a peer never calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "collectives/runtime/waiting/backoff.h"
#include "collectives/runtime/waiting/lateness.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::run_ranks;
using testing::run_ranks_catching;

class Waiting : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, Waiting, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

// Rank 1 stays in the job, without other calls, until it gets the error of rank 0.
void stay(Communicator& comm) {
  int32_t value = 0;
  comm.recv(std::span(&value, 1), 0);
}

TEST(WaitTimes, LearnHowLongSpinningIsWorthIt) {
  constexpr int64_t kMillisecond = 1'000'000;
  internal::WaitTimes time;
  const int64_t least = time.spin_ns();
  EXPECT_LT(least, kMillisecond);
  time.learn_from_sleep(kMillisecond);
  EXPECT_EQ(time.spin_ns(), 2 * kMillisecond);
  time.learn_from_sleep(kMillisecond / 2);
  EXPECT_EQ(time.spin_ns(), 2 * kMillisecond) << "a shorter one would have been caught";
  time.learn_from_sleep(5 * kMillisecond / 2);
  EXPECT_EQ(time.spin_ns(), 3 * kMillisecond) << "no longer than that";
  time.learn_from_sleep(1000 * kMillisecond);
  EXPECT_EQ(time.spin_ns(), least) << "nothing would have caught this one";
}

TEST(WaitTimes, MeasureHowLongWaitsTake) {
  internal::WaitTimes time;
  EXPECT_EQ(time.waited_ns(), 0);
  {
    internal::Backoff backoff(true, false, time);
    EXPECT_EQ(time.waiting_ns(), 0);
    const Deadline deadline = Deadline::after(milliseconds(5));
    while (!deadline.passed()) backoff.pause();
    EXPECT_GE(time.waiting_ns(), 4'000'000);
    backoff.reset();
    EXPECT_EQ(time.waiting_ns(), 0);
  }
  const int64_t waited = time.waited_ns();
  EXPECT_GE(waited, 4'000'000);
  EXPECT_EQ(time.waited_ns(), waited) << "nobody waits any more";
}

TEST(Lateness, ReportsThreeLateCallsOfOneRankInARow) {
  internal::Lateness lateness;
  EXPECT_FALSE(lateness.knows(1));
  EXPECT_EQ(lateness.note(1, 2), 1U);
  EXPECT_TRUE(lateness.knows(1));
  EXPECT_EQ(lateness.note(2, 2), 2U);
  EXPECT_FALSE(lateness.is_news());
  EXPECT_EQ(lateness.note(3, 2), 3U);
  EXPECT_TRUE(lateness.is_news());
  EXPECT_FALSE(lateness.is_news()) << "said once";
  EXPECT_EQ(lateness.note(4, 2), 4U);
  EXPECT_FALSE(lateness.is_news()) << "and not for each call";
  EXPECT_EQ(lateness.note(6, 2), 1U) << "nobody was late in call 5";
  EXPECT_EQ(lateness.note(7, 1), 1U) << "another rank";
  lateness.note(8, 1);
  EXPECT_FALSE(lateness.is_news());
  lateness.note(9, 1);
  EXPECT_TRUE(lateness.is_news());
}

TEST_P(Waiting, PollingMeetsTheDeadline) {
  const auto errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 1) return stay(comm);
    Work work = comm.barrier_async({.timeout = milliseconds(400)});
    while (!work.test()) std::this_thread::yield();
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_EQ(errors[0]->code(), ErrorCode::timeout) << errors[0]->what();
  EXPECT_THAT(errors[0]->what(), HasSubstr("rank 1 ("));
}

// With a timeout of 0 there is no deadline: neither that of TUTTI_TIMEOUT, nor one that has already
// passed.
TEST_P(Waiting, ATimeoutOfZeroIsNoDeadline) {
  settings().set("TUTTI_TIMEOUT", "0.2");
  std::promise<void> waited;
  run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 1) {
      waited.get_future().wait();
      comm.barrier({.timeout = milliseconds(0)});
      return;
    }
    Work work = comm.barrier_async({.timeout = milliseconds(0)});
    const Deadline deadline = Deadline::after(milliseconds(600));
    while (!deadline.passed()) EXPECT_EQ(work.poll(), WorkState::in_flight);
    waited.set_value();
    work.wait();
  });
  settings().set("TUTTI_TIMEOUT", "300");
}

// The number after the largest call number is 1, because 0 means a message or no call.
TEST_P(Waiting, CallNumbersContinueAfterTheLargest) {
  settings().set("TUTTI_FIRST_CALL", "4294967294");
  const auto errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (int call = 0; call < 5; ++call) {
      std::vector<int32_t> values(100, comm.rank() + call);
      comm.all_reduce(std::span(values));
      EXPECT_EQ(values, std::vector<int32_t>(100, 1 + 2 * call));
    }
    if (comm.rank() == 1) return stay(comm);
    comm.barrier({.timeout = milliseconds(400)});
  });
  settings().set("TUTTI_FIRST_CALL", "1");
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_EQ(errors[0]->code(), ErrorCode::timeout) << errors[0]->what();
  EXPECT_THAT(errors[0]->what(), HasSubstr("call 4,"));
  EXPECT_THAT(errors[0]->what(), HasSubstr("which is at call 3"));
}

TEST_P(Waiting, ShortWaitsFindAMismatch) {
  const auto errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<float> values(100, 1);
    if (comm.rank() == 1) {
      comm.all_reduce(std::span(values).first(0));
      return stay(comm);
    }
    const Buffer buffer = buffer_of(std::span(values));
    Work work = comm.all_reduce_async(as_const(buffer), buffer);
    while (!work.wait_for(milliseconds(20))) {
    }
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
  }
}

// Each rank polls the call that the other rank polls only later.
TEST_P(Waiting, PollingOneCommunicatorProgressesTheOthers) {
  run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator other = world.duplicate();
    std::vector<std::vector<int64_t>> values(2, std::vector<int64_t>(100'000, 1));
    const Buffer first = buffer_of(std::span(values[0]));
    const Buffer second = buffer_of(std::span(values[1]));
    std::vector<Work> works = {world.all_reduce_async(as_const(first), first),
                               other.all_reduce_async(as_const(second), second)};
    if (world.rank() == 1) std::swap(works[0], works[1]);
    for (Work& work : works) {
      while (!work.test()) std::this_thread::yield();
    }
    for (const auto& part : values) EXPECT_EQ(part, std::vector<int64_t>(100'000, 2));
  });
}

TEST_P(Waiting, ATimeOutOfWaitForIsNoAbort) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (comm.rank() == 0) {
      Work work = comm.barrier_async();
      EXPECT_FALSE(work.wait_for(milliseconds(5)));
      int32_t go = 1;
      comm.send(std::span<const int32_t>(&go, 1), 1);
      work.wait();
    } else {
      stay(comm);
      comm.barrier();
    }
  });
}

TEST_P(Waiting, SendOfNothingDoesNotFitARecvOfSomething) {
  const auto errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<int32_t> values(100, 1);
    if (comm.rank() == 0) {
      comm.send(std::span<const int32_t>(values).first(0), 1);
      comm.barrier();
    } else {
      comm.recv(std::span(values), 0);
    }
  });
  ASSERT_TRUE(errors[1].has_value());
  EXPECT_EQ(errors[1]->code(), ErrorCode::mismatch) << errors[1]->what();
}

TEST_P(Waiting, ADestroyedCommunicatorIsNamed) {
  const auto errors = run_ranks_catching(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    {
      Communicator copy = world.duplicate();
      if (copy.rank() == 0) copy.barrier();
    }
    stay(world);
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_THAT(errors[0]->what(), HasSubstr("rank 1 ("));
  EXPECT_NE(errors[0]->code(), ErrorCode::timeout) << errors[0]->what();
}

TEST_P(Waiting, SeveralThreadsOnOneCommunicator) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    constexpr int kThreads = 4;
    std::vector<std::vector<int64_t>> values(kThreads, std::vector<int64_t>(5000, comm.rank()));
    std::vector<Work> works;
    for (auto& part : values) {
      const Buffer buffer = buffer_of(std::span(part));
      works.push_back(comm.all_reduce_async(as_const(buffer), buffer));
    }
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { works[t].wait(); });
    threads.clear();
    for (const auto& part : values) EXPECT_EQ(part, std::vector<int64_t>(5000, 3));
  });
}

// After the error of an abort was thrown, nothing may write to the caller's buffers.
TEST_P(Waiting, BuffersAreTheCallersAfterAnAbort) {
  const auto errors = run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Communicator other = comm.duplicate();
    std::vector<float> values(4'000'000, 1);
    const Buffer buffer = buffer_of(std::span(values));
    Work work = comm.all_reduce_async(as_const(buffer), buffer);
    std::jthread helper([&] {
      try {
        other.barrier();  // also progresses the call of the first communicator
      } catch (const Error&) {
      }
    });
    if (comm.rank() == 1) comm.abort("enough");
    try {
      work.wait();
    } catch (const Error&) {
      const std::vector<float> then = values;
      std::this_thread::yield();
      EXPECT_EQ(values, then);
      throw;
    }
  });
}

TEST_P(Waiting, AChildAfterForkIsRefusedAndHarmsNothing) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    int32_t value = 1;
    comm.all_reduce(std::span(&value, 1));
    if (comm.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        int code = 1;
        try {
          comm.all_reduce(std::span(&value, 1));
        } catch (const Error& error) {
          code = error.code() == ErrorCode::unsupported ? 0 : 2;
        }
        ::_exit(code);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    value = 10;
    comm.all_reduce(std::span(&value, 1));
    EXPECT_EQ(value, 20);
  });
}

}  // namespace
}  // namespace tutti
