// Tests calls and handles after their communicator was destroyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

constexpr int32_t kUntouched = -7;

class Lifetime : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, Lifetime, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

void expect_abandoned(Work& work) {
  EXPECT_EQ(work.poll(), WorkState::failed);
  ASSERT_TRUE(work.error());
  EXPECT_EQ(work.error()->code(), ErrorCode::aborted) << work.error()->what();
  EXPECT_THROW(work.wait(), Error);
  EXPECT_THROW(work.test(), Error);
}

// Rank 0 destroys the communicator while the call that `begin` has made is in flight. Then rank 1
// runs `other_part`. The buffer of rank 0, whose memory could have been reused, must not be
// modified.
void expect_untouched(const std::function<Work(Communicator&, std::span<int32_t>)>& begin,
                      const std::function<Work(Communicator&, std::span<int32_t>)>& other_part) {
  testing::run_ranks(2, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<int32_t> values(100'000, kUntouched);
    Communicator short_lived = world.duplicate();
    if (world.rank() == 0) {
      Work work = begin(short_lived, values);
      short_lived = Communicator();
      world.barrier();
      for (int turn = 0; turn < 100; ++turn) world.barrier();
      expect_abandoned(work);
      EXPECT_EQ(std::ranges::count(values, kUntouched), std::ssize(values));
    } else {
      world.barrier();
      Work work;
      try {
        work = other_part(short_lived, values);
      } catch (const Error&) {  // rank 1 may already have noticed that rank 0 has left
      }
      for (int turn = 0; turn < 100; ++turn) {
        work.poll();
        world.barrier();
      }
    }
    world.barrier();
  });
}

TEST_P(Lifetime, AReceiveInFlightIsAbandoned) {
  expect_untouched([](Communicator& comm,
                      std::span<int32_t> values) { return comm.recv_async(buffer_of(values), 1); },
                   [](Communicator& comm, std::span<int32_t> values) {
                     std::ranges::fill(values, 1);
                     return comm.send_async(const_buffer_of<int32_t>(values), 0);
                   });
}

TEST_P(Lifetime, ACollectiveInFlightIsAbandoned) {
  const auto all_reduce = [](Communicator& comm, std::span<int32_t> values) {
    if (comm.rank() == 1) std::ranges::fill(values, 1);
    return comm.all_reduce_async(as_const(buffer_of(values)), buffer_of(values));
  };
  expect_untouched(all_reduce, all_reduce);
}

TEST_P(Lifetime, APreparedCallInFlightIsAbandonedAndCannotBeStarted) {
  std::optional<Prepared> prepared;
  const auto start = [&](Communicator& comm, std::span<int32_t> values) {
    if (comm.rank() == 1) return comm.send_async(const_buffer_of<int32_t>(values), 0);
    prepared = comm.prepare(Request::recv(buffer_of(values), 1));
    return prepared->start();
  };
  expect_untouched(start, start);
  for (const auto& begin : {std::function<void()>([&] { prepared->start(); }),
                            std::function<void()>([&] { prepared->run(); })}) {
    try {
      begin();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
  }
}

TEST_P(Lifetime, AGroupDoesNotKeepTheCommunicatorsOfItsCalls) {
  expect_untouched(
      [](Communicator& comm, std::span<int32_t> values) {
        group_begin();
        comm.recv(buffer_of(values), 1);
        std::vector<Work> works = group_end_async();
        EXPECT_EQ(works.size(), 1U);
        return works.front();
      },
      [](Communicator& comm, std::span<int32_t> values) {
        return comm.send_async(const_buffer_of<int32_t>(values), 0);
      });
}

TEST_P(Lifetime, AGroupWhoseCommunicatorIsGoneEndsWithAnError) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<int32_t> values(1);
    if (world.rank() == 0) {
      group_begin();
      {
        Communicator self = world.create(std::vector<int>{0});
        self.recv(buffer_of(std::span(values)), 0);
      }
      EXPECT_THROW(group_end(), Error);
    }
    world.barrier();
  });
}

TEST_P(Lifetime, CallbacksReceiveTheError) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<int32_t> values(1);
    int calls = 0;
    Communicator self = world.create(std::vector<int>{world.rank()});
    Work before = self.recv_async(buffer_of(std::span(values)), 0);
    before.on_end([&](const Error* error) { calls += error != nullptr ? 1 : 100; });
    Work after = self.recv_async(buffer_of(std::span(values)), 0);
    self = Communicator();
    EXPECT_EQ(calls, 1);
    after.on_end([&](const Error* error) { calls += error != nullptr ? 1 : 100; });
    EXPECT_EQ(calls, 2);
    world.barrier();
  });
}

TEST_P(Lifetime, CompleteCallsStayComplete) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<int32_t> in(2, 0);
    const std::vector<int32_t> out(2, 5);
    Communicator short_lived = world.duplicate();
    const int other = 1 - world.rank();
    Work receive = short_lived.recv_async(buffer_of(std::span(in)), other);
    Work send = short_lived.send_async(const_buffer_of<int32_t>(out), other);
    receive.wait();
    send.wait();
    short_lived = Communicator();
    EXPECT_EQ(receive.poll(), WorkState::complete);
    EXPECT_FALSE(receive.error());
    EXPECT_EQ(receive.received().source, other);
    receive.wait();
    EXPECT_EQ(in, out);
    receive.abort("there is nothing to abort");
    world.barrier();
  });
}

// A call that follows an abandoned one fails instead of waiting for it.
TEST_P(Lifetime, CallsThatFollowFail) {
  const auto errors = testing::run_ranks_catching(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<int32_t> values(1);
    Work first;
    {
      Communicator self = world.create(std::vector<int>{world.rank()});
      first = self.recv_async(buffer_of(std::span(values)), 0);
    }
    const std::vector<Work> after = {first};
    world.barrier({.after = after});
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::aborted) << error->what();
  }
}

}  // namespace
}  // namespace tutti
