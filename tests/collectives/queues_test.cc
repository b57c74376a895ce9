// Tests the queues of a communicator: calls and messages of each queue are ordered separately, but
// all queues fail together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using Values = std::vector<int64_t>;
using ::testing::HasSubstr;

ConstBuffer from(const Values& values) { return {values.data(), values.size(), DType::i64}; }
Buffer into(Values& values) { return {values.data(), values.size(), DType::i64}; }

// Each rank starts its calls in a different order, which would be a mismatch within one queue.
TEST(Queues, CallsOfDifferentQueuesAreIndependent) {
  for (const char* transport : {"shm", "tcp"}) {
    settings().set("TUTTI_TRANSPORT", transport);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      testing::run_ranks(ranks, [](const Job& job) {
        constexpr int kQueues = 3;
        Communicator comm = Communicator::init(job);
        comm.open_queues(kQueues - 1);
        const int64_t p = comm.size();
        for (const size_t count : {size_t{1}, size_t{1001}, size_t{200'000}}) {
          std::vector<Values> sums(kQueues);
          std::vector<Work> works;
          for (int i = 0; i < kQueues; ++i) {
            const int queue = (comm.rank() + i) % kQueues;
            Values& sum = sums[static_cast<size_t>(queue)];
            sum.assign(count, comm.rank() + queue);
            works.push_back(
                comm.all_reduce_async(from(sum), into(sum), ReduceOp::sum, {.queue = queue}));
          }
          for (Work& work : works) work.wait();
          for (int queue = 0; queue < kQueues; ++queue) {
            EXPECT_EQ(sums[static_cast<size_t>(queue)], Values(count, p * (p - 1) / 2 + p * queue));
          }
        }
      });
    }
  }
  settings().set("TUTTI_TRANSPORT", "auto");
}

TEST(Queues, EachThreadHasItsOwnQueue) {
  testing::run_ranks(3, [](const Job& job) {
    constexpr int kQueues = 4;
    Communicator comm = Communicator::init(job);
    comm.open_queues(kQueues);
    std::vector<std::jthread> threads;
    for (int queue = 1; queue <= kQueues; ++queue) {
      threads.emplace_back([&comm, queue] {
        for (int64_t call = 0; call < 50; ++call) {
          Values largest = {queue * 1000 + call + comm.rank()};
          comm.all_reduce(from(largest), into(largest), ReduceOp::max, {.queue = queue});
          EXPECT_EQ(largest[0], queue * 1000 + call + 2);
        }
      });
    }
    for (int64_t call = 0; call < 50; ++call) comm.barrier();
  });
}

TEST(Queues, MayBeOpenedWhileOthersAreInUse) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.open_queues(1);
    std::jthread user([&comm] {
      for (int call = 0; call < 100; ++call) comm.barrier({.queue = 1});
    });
    for (int count = 1; count <= Communicator::kMostQueues; ++count) comm.open_queues(count);
    comm.barrier({.queue = Communicator::kMostQueues});
  });
}

TEST(Queues, CallsFollowCallsOfOtherQueues) {
  testing::run_ranks(4, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.open_queues(1);
    Values sum = {comm.rank()};
    Values all(4);
    const Work before[] = {comm.all_reduce_async(from(sum), into(sum), ReduceOp::sum)};
    comm.all_gather(from(sum), into(all), {.after = before, .queue = 1});
    EXPECT_EQ(all, Values(4, 6));
  });
}

TEST(Queues, HaveTheirOwnMessages) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.open_queues(1);
    const Values first = {1};
    const Values second = {2};
    if (comm.rank() == 0) {
      comm.send(from(first), 1, {.queue = 1});
      comm.send(from(second), 1);
    } else {
      Values got(1);
      comm.recv(into(got), 0, {.tag = kAnyTag});
      EXPECT_EQ(got, second);
      comm.recv(into(got), kAnySource, {.queue = 1});
      EXPECT_EQ(got, first);
    }
  });
}

TEST(Queues, RunPreparedCallsAndGroupsOfThem) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.open_queues(1);
    Values in = {comm.rank() + 1};
    Values out(1);
    Prepared sum =
        comm.prepare(Request::all_reduce(from(in), into(out), ReduceOp::sum), {.queue = 1});
    EXPECT_EQ(
        sum.algorithm(),
        comm.algorithm_of(Request::all_reduce(from(in), into(out), ReduceOp::sum), {.queue = 1}));
    for (int start = 0; start < 3; ++start) {
      out = {0};
      Work work = sum.start();
      comm.barrier();
      work.wait();
      EXPECT_EQ(out, Values{3});
    }
  });
}

TEST(Queues, AMismatchNamesTheQueueAndItsCall) {
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.open_queues(2);
    comm.barrier({.queue = 2});
    Values value(1);
    const ReduceOp op = comm.rank() == 1 ? ReduceOp::max : ReduceOp::sum;
    comm.all_reduce(from(value), into(value), op, {.queue = 2});
    for (;;) comm.barrier();
  });
  for (const std::optional<Error>& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::mismatch);
    EXPECT_THAT(error->what(), HasSubstr("at call 2 of queue 2: "));
  }
}

// An abort of the communicator or of a queue ends the calls of the communicator and of all queues,
// on every rank.
TEST(Queues, FailTogether) {
  for (const int aborted : {0, 1, 2}) {
    std::latch all(2);
    const auto errors = testing::run_ranks_catching(2, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      comm.open_queues(2);
      Values value(1);
      std::vector<Work> receives;
      for (int queue = 0; queue <= 2; ++queue) {
        receives.push_back(comm.recv_async(into(value), 1 - comm.rank(), {.queue = queue}));
      }
      all.arrive_and_wait();
      if (comm.rank() == 1) receives[static_cast<size_t>(aborted)].abort("enough");
      for (Work& receive : receives) {
        while (receive.poll() == WorkState::in_flight) {
        }
        ASSERT_TRUE(receive.error());
        EXPECT_THAT(receive.error()->what(), HasSubstr("enough"));
      }
      ASSERT_TRUE(comm.failure());
      comm.barrier({.queue = 1 + aborted % 2});
    });
    for (const std::optional<Error>& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::aborted);
      EXPECT_THAT(error->what(), HasSubstr("enough"));
    }
  }
}

TEST(Queues, RefusesQueuesThatAreNotOpen) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    const auto refusal = [](auto call) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    EXPECT_THAT(refusal([&] { comm.barrier({.queue = 1}); }),
                HasSubstr("queue 1 is not open: the communicator has queues 0 to 0"));
    comm.open_queues(2);
    EXPECT_THAT(refusal([&] { comm.barrier({.queue = -1}); }), HasSubstr("queue -1 is not open"));
    EXPECT_THAT(refusal([&] { comm.barrier({.queue = 3}); }), HasSubstr("queues 0 to 2"));
    EXPECT_THAT(refusal([&] { comm.open_queues(1); }), HasSubstr("2 queues are already open"));
    EXPECT_THAT(refusal([&] { comm.open_queues(Communicator::kMostQueues + 1); }),
                HasSubstr("is not in 2 to 16"));
    Communicator copy = comm.duplicate();
    EXPECT_THAT(refusal([&] { copy.barrier({.queue = 1}); }), HasSubstr("queue 1 is not open"));
    comm.barrier({.queue = 2});
  });
}

TEST(Queues, AllRanksHaveTheSameNumberOfQueues) {
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.open_queues(comm.rank() == 2 ? 1 : 2);
  });
  for (const std::optional<Error>& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::mismatch);
    EXPECT_THAT(error->what(), HasSubstr("pass the same number to open_queues() on all ranks"));
  }
}

}  // namespace
}  // namespace tutti
