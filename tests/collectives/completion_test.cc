// Tests the completion of calls: states without exceptions, callbacks, calls that follow others,
// and the hook that is called while a rank waits.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using Values = std::vector<int64_t>;

ConstBuffer from(const Values& values) { return const_buffer_of(std::span<const int64_t>(values)); }
Buffer into(Values& values) { return buffer_of(std::span(values)); }

TEST(Completion, PollReportsErrorsWithoutThrowing) {
  std::latch both(2);
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values values = {comm.rank() + 1};
    Work never_started;
    EXPECT_EQ(never_started.poll(), WorkState::complete);
    Work work = comm.all_reduce_async(from(values), into(values));
    WorkState state = work.poll();
    while (state == WorkState::in_flight) state = work.poll();
    EXPECT_EQ(state, WorkState::complete);
    EXPECT_FALSE(work.error());
    EXPECT_EQ(values, Values({3}));

    Work stuck = comm.recv_async(into(values), 1 - comm.rank());
    EXPECT_EQ(stuck.poll(), WorkState::in_flight);
    both.arrive_and_wait();
    if (comm.rank() == 0) comm.abort("enough");
    while (state != WorkState::failed) state = stuck.poll();
    ASSERT_TRUE(stuck.error());
    EXPECT_EQ(stuck.error()->code(), ErrorCode::aborted);
    EXPECT_THROW(comm.barrier(), Error);
  });
}

TEST(Completion, CallsBackOnceForEachCall) {
  for (const char* thread : {"0", "1"}) {
    settings().set("TUTTI_PROGRESS_THREAD", thread);
    testing::run_ranks(3, [](const Job& job) {
      Communicator comm = Communicator::init(job);
      constexpr int kCalls = 20;
      std::atomic<int> ended{0};
      std::vector<Values> values(kCalls, Values(1000, comm.rank()));
      std::vector<Work> works;
      for (Values& value : values) {
        works.push_back(comm.all_reduce_async(from(value), into(value)));
        works.back().on_end([&](const Error* error) {
          EXPECT_EQ(error, nullptr);
          ended.fetch_add(1);
        });
      }
      for (Work& work : works) work.wait();
      // Another thread may still be about to invoke the last callbacks.
      while (ended.load() < kCalls) works.back().wait();
      int after_the_end = 0;
      works[0].on_end([&](const Error* error) { after_the_end += error == nullptr ? 1 : 100; });
      while (after_the_end == 0) works[0].wait();
      EXPECT_EQ(after_the_end, 1);
      EXPECT_EQ(ended.load(), kCalls);
      comm.barrier();
    });
  }
  settings().set("TUTTI_PROGRESS_THREAD", "0");
}

// Makes a chain of calls, each in the callback of the one before. No thread waits for the calls.
TEST(Completion, LetsCallbacksMakeCalls) {
  settings().set("TUTTI_PROGRESS_THREAD", "1");
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    constexpr int kLinks = 50;
    Values value = {1};
    int links = 0;
    std::promise<void> last;
    std::function<void(const Error*)> next = [&](const Error* error) {
      ASSERT_EQ(error, nullptr);
      if (++links == kLinks) return last.set_value();
      comm.all_reduce_async(from(value), into(value)).on_end(next);
    };
    comm.all_reduce_async(from(value), into(value), ReduceOp::max).on_end(next);
    last.get_future().wait();
    EXPECT_EQ(value, Values({int64_t{1} << (kLinks - 1)}));
    comm.barrier();
  });
  settings().set("TUTTI_PROGRESS_THREAD", "0");
}

// A blocking call that completes at once completes an earlier call with it.
TEST(Completion, CallsBackWhenABlockingCallReturns) {
  std::latch posted(2), sent(2);
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values first = {1}, second = {2};
    if (comm.rank() == 1) {
      posted.arrive_and_wait();
      comm.send(from(first), 0, {.tag = 1});
      comm.send(from(second), 0, {.tag = 2});
      sent.arrive_and_wait();
      comm.barrier();
      return;
    }
    bool called = false;
    Values got(1), last(1);
    Work work = comm.recv_async(into(got), 1, {.tag = 1});
    work.on_end([&](const Error*) { called = true; });
    posted.arrive_and_wait();
    sent.arrive_and_wait();
    comm.recv(into(last), 1, {.tag = 2});
    EXPECT_TRUE(called);
    EXPECT_EQ(got, first);
    EXPECT_EQ(last, second);
    comm.barrier();
  });
}

TEST(Completion, PassesFailuresToCallbacks) {
  std::latch both(2);
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values value(1);
    std::optional<Error> seen;
    int calls = 0;
    const auto note = [&](const Error* error) {
      ++calls;
      if (error != nullptr) seen = *error;
    };
    Work receive = comm.recv_async(into(value), 1 - comm.rank());
    receive.on_end(note);
    both.arrive_and_wait();
    if (comm.rank() == 0) comm.abort("no more");
    while (receive.poll() == WorkState::in_flight) {
    }
    EXPECT_EQ(calls, 1);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->code(), ErrorCode::aborted);
    receive.on_end(note);
    EXPECT_EQ(calls, 2);
  });
}

TEST(Completion, PassesTheCommunicatorsEndToCallbacks) {
  testing::run_ranks(1, [](const Job& job) {
    Values value(1);
    std::optional<Error> seen;
    {
      Communicator comm = Communicator::init(job);
      comm.recv_async(into(value), 0).on_end([&](const Error* error) {
        ASSERT_NE(error, nullptr);
        seen = *error;
      });
    }
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->code(), ErrorCode::aborted);
  });
}

// Makes a reduce_scatter on one communicator, then an all_gather of its result on another one.
TEST(Following, StartsWhenThePrecedingCallsAreComplete) {
  for (const int ranks : {1, 2, 4}) {
    testing::run_ranks(ranks, [](const Job& job) {
      Communicator first = Communicator::init(job);
      Communicator second = first.duplicate();
      const auto p = static_cast<size_t>(first.size());
      for (const size_t count : {1, 1000, 100'000}) {
        const Values input(count * p, first.rank() + 1);
        Values mine(count);
        Values all(count * p);
        const Work scattered = first.reduce_scatter_async(from(input), into(mine));
        const Work before[] = {scattered};
        Work gathered = second.all_gather_async(from(mine), into(all), {.after = before});
        gathered.wait();
        EXPECT_EQ(all, Values(count * p, static_cast<int64_t>(p * (p + 1) / 2)));
      }
    });
  }
}

TEST(Following, OrdersMessagesByThePrecedingCalls) {
  for (const char* transport : {"shm", "tcp"}) {
    settings().set("TUTTI_TRANSPORT", transport);
    testing::run_ranks(2, [](const Job& job) {
      Communicator comm = Communicator::init(job);
      Communicator other = comm.duplicate();
      Values sum = {comm.rank() + 1};
      Values in(1);
      Values late(1);
      const Work reduced = other.all_reduce_async(from(sum), into(sum));
      const Work before[] = {reduced};
      if (comm.rank() == 0) {
        // This message contains the result of the reduction, and is sent after the other message,
        // which follows no call.
        Work following = comm.send_async(from(sum), 1, {.after = before});
        const Values second = {7};
        Work plain = comm.send_async(from(second), 1);
        plain.wait();
        following.wait();
      } else {
        Work receive = comm.recv_async(into(late), 0, {.after = before, .tag = kAnyTag});
        comm.recv(into(in), 0);
        receive.wait();
        // The order of the two receives is not specified.
        EXPECT_EQ(in[0] + late[0], 10);
      }
    });
  }
  settings().set("TUTTI_TRANSPORT", "auto");
}

TEST(Following, ScalesItsInputAfterThePrecedingCalls) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Communicator other = comm.duplicate();
    std::vector<double> value = {1.0};
    std::vector<double> out(1);
    const Work reduced = other.all_reduce_async(const_buffer_of(std::span<const double>(value)),
                                                buffer_of(std::span(value)));
    const Work before[] = {reduced};
    Work work = comm.all_reduce_async(const_buffer_of(std::span<const double>(value)),
                                      buffer_of(std::span(out)), Reduction::premul_sum(10.0),
                                      {.after = before});
    work.wait();
    EXPECT_EQ(out[0], 40.0);
  });
}

TEST(Following, WorksOnARankThatIsAlone) {
  testing::run_ranks(1, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values in(1);
    Values out(1);
    const Work receive = comm.recv_async(into(in), 0);
    const Work before[] = {receive};
    Work copy = comm.all_reduce_async(from(in), into(out), ReduceOp::avg, {.after = before});
    EXPECT_FALSE(copy.test());
    comm.send(from({7}), 0);
    copy.wait();
    EXPECT_EQ(out, Values({7}));
    EXPECT_THROW(comm.prepare(Request::barrier(), {.after = before}), Error);
  });
}

TEST(Following, FailsIfAPrecedingCallFails) {
  const auto errors = testing::run_ranks_catching(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Communicator other = comm.duplicate();
    Values value(1);
    Values sum(1);
    const Work receive = other.recv_async(into(value), 1 - comm.rank());
    const Work before[] = {receive};
    Work work = comm.all_reduce_async(from(sum), into(sum), ReduceOp::sum, {.after = before});
    comm.valid();
    if (comm.rank() == 0) other.abort("broken");
    work.wait();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::aborted);
    EXPECT_NE(std::string(error->what()).find("broken"), std::string::npos) << error->what();
  }
}

// No handle refers to the calls in flight. The communicator is destroyed and fails the calls that
// follow.
TEST(Following, FailsWithACommunicatorThatIsDestroyed) {
  testing::run_ranks(1, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values in(1);
    Values out(1);
    std::optional<Error> seen;
    {
      Communicator other = comm.duplicate();
      const Work receive = other.recv_async(into(in), 0);
      const Work before[] = {receive};
      // Nor does a following call on the same communicator keep the communicator alive.
      other.all_reduce_async(from(in), into(out), ReduceOp::sum, {.after = before});
      comm.all_reduce_async(from(in), into(out), ReduceOp::sum, {.after = before})
          .on_end([&](const Error* error) { seen = *error; });
    }
    EXPECT_THROW(comm.await_message(0), Error);
    ASSERT_TRUE(seen);
    EXPECT_NE(std::string(seen->what()).find("has destroyed the communicator"), std::string::npos)
        << seen->what();
  });
}

// The message of the second rank depends on the hook of the first rank. This dependency is not
// known to Tutti.
TEST(WhileWaiting, TheHookIsCalled) {
  std::promise<void> stirred;
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values value(1);
    if (comm.rank() == 0) {
      int calls = 0;
      comm.while_waiting([&] {
        if (++calls == 100) stirred.set_value();
      });
      comm.recv(into(value), 1);
      EXPECT_GE(calls, 100);
      comm.while_waiting({});
    } else {
      stirred.get_future().wait();
      comm.send(from(value), 0);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace tutti
