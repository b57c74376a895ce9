// Tests groups of calls, prepared calls, handles of calls, and communicators of one rank.
#include "collectives/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <exception>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using testing::run_ranks_catching;
using Values = std::vector<int64_t>;

constexpr size_t kCount = 50'000;  // more than a connection can buffer

class Group : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, Group, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

int64_t value_of(int from, int to) { return 100 * from + to; }

// The data that a rank sends to, and receives from, every other rank.
struct Exchange {
  explicit Exchange(const Communicator& comm) {
    for (int peer = 0; peer < comm.size(); ++peer) {
      out.emplace_back(kCount, value_of(comm.rank(), peer));
      in.emplace_back(kCount, -1);
    }
  }
  void send(Communicator& comm, int peer) { comm.send(std::span<const int64_t>(out[peer]), peer); }
  void recv(Communicator& comm, int peer) { comm.recv(std::span(in[peer]), peer); }
  void check(const Communicator& comm) const {
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      EXPECT_EQ(in[peer], Values(kCount, value_of(peer, comm.rank())));
    }
  }
  std::vector<Values> out;
  std::vector<Values> in;
};

std::vector<int> others(const Communicator& comm) {
  std::vector<int> peers;
  for (int i = 1; i < comm.size(); ++i) peers.push_back((comm.rank() + i) % comm.size());
  return peers;
}

TEST_P(Group, AllSendsMayComeFirst) {
  run_ranks(5, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Exchange exchange(comm);
    group_begin();
    for (const int peer : others(comm)) exchange.send(comm, peer);
    for (const int peer : others(comm)) exchange.recv(comm, peer);
    group_end();
    exchange.check(comm);
  });
}

TEST_P(Group, EachRankMayHaveItsOwnOrder) {
  run_ranks(4, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Exchange exchange(comm);
    group_begin();
    for (const int peer : others(comm)) {
      if (comm.rank() % 2 == 0) exchange.recv(comm, peer);
      exchange.send(comm, peer);
      if (comm.rank() % 2 != 0) exchange.recv(comm, peer);
    }
    group_end();
    exchange.check(comm);
  });
}

TEST_P(Group, SpansCommunicatorsAndKindsOfCalls) {
  run_ranks(4, [](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator half = world.split(world.rank() % 2);
    Communicator copy = world.duplicate();
    Exchange exchange(world);
    Values of_half(kCount, 1);
    Values of_copy(kCount, 1);
    const auto reduce_half = [&] { half.all_reduce(std::span(of_half)); };
    const auto reduce_copy = [&] { copy.all_reduce(std::span(of_copy)); };
    group_begin();
    for (const int peer : others(world)) exchange.recv(world, peer);
    if (world.rank() < 2) reduce_half();
    reduce_copy();
    if (world.rank() >= 2) reduce_half();
    for (const int peer : others(world)) exchange.send(world, peer);
    group_end();
    exchange.check(world);
    EXPECT_EQ(of_half, Values(kCount, 2));
    EXPECT_EQ(of_copy, Values(kCount, 4));
  });
}

TEST_P(Group, OnlyTheOutermostEndCounts) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Exchange exchange(comm);
    const int peer = 1 - comm.rank();
    group_begin();
    group_begin();
    exchange.send(comm, peer);
    group_end();  // would never return if it waited
    exchange.recv(comm, peer);
    group_end();
    exchange.check(comm);
  });
}

TEST_P(Group, EndsWithoutWaiting) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Exchange exchange(comm);
    const int peer = 1 - comm.rank();
    group_begin();
    exchange.send(comm, peer);
    exchange.recv(comm, peer);
    std::vector<Work> works = group_end_async();
    ASSERT_EQ(works.size(), 2);
    for (Work& work : works) work.wait();
    exchange.check(comm);
  });
}

TEST_P(Group, ACallThatIsRefusedHarmsNoOther) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Exchange exchange(comm);
    const int peer = 1 - comm.rank();
    group_begin();
    exchange.send(comm, peer);
    EXPECT_THROW(comm.send(std::span<const int64_t>(exchange.out[peer]), comm.size()), Error);
    exchange.recv(comm, peer);
    group_end();
    exchange.check(comm);
  });
}

// An error is thrown at the end of the group, or by a call if it is known then. The other calls
// complete before.
TEST_P(Group, FailsAtItsEnd) {
  std::barrier all(3);
  const auto errors = run_ranks_catching(3, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    Communicator other = comm.duplicate();
    all.arrive_and_wait();  // because an abort of `comm` would end the creation of `other`
    Values values(kCount, 1);
    Values good(kCount, 1);
    std::exception_ptr failure;
    const auto attempt = [&](const auto& call) {
      try {
        call();
      } catch (const Error&) {
        failure = std::current_exception();
      }
    };
    group_begin();
    other.all_reduce(std::span(good));
    attempt([&] {
      comm.all_reduce(std::span(values), comm.rank() == 1 ? ReduceOp::max : ReduceOp::sum);
    });
    attempt(group_end);
    EXPECT_EQ(good, Values(kCount, 3));
    EXPECT_THROW(group_end(), Error) << "the group is over";
    all.arrive_and_wait();  // all ranks keep their communicators until here
    if (failure) std::rethrow_exception(failure);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
  }
}

TEST(GroupAlone, EndWithoutABeginIsRefused) {
  try {
    group_end();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("without a group_begin()"));
  }
}

TEST_P(Group, BelongsToAThread) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    group_begin();
    std::jthread([&] {
      Values values(3, 1);
      comm.all_reduce(std::span(values));  // blocks, because this thread has no group
      EXPECT_EQ(values, Values(3, 2));
    }).join();
    group_end();
  });
}

TEST_P(Group, PreparedCallsAreStartedManyTimes) {
  run_ranks(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values input(1003);
    Values output(1003);
    Prepared sum =
        comm.prepare(Request::all_reduce(const_buffer_of(std::span<const int64_t>(input)),
                                         buffer_of(std::span(output)), ReduceOp::sum),
                     {.algorithm = "ring"});
    EXPECT_EQ(sum.algorithm(), "ring");
    const int next = (comm.rank() + 1) % 3;
    const int previous = (comm.rank() + 2) % 3;
    Values received(1003);
    Prepared sending =
        comm.prepare(Request::send(const_buffer_of(std::span<const int64_t>(input)), next));
    Prepared receiving = comm.prepare(Request::recv(buffer_of(std::span(received)), previous));
    EXPECT_EQ(sending.algorithm(), "");
    for (int64_t i = 0; i < 200; ++i) {
      std::iota(input.begin(), input.end(), i + comm.rank());
      group_begin();
      sending.run();
      sum.start();
      receiving.run();
      group_end();
      for (int64_t j : {0, 1, 1002}) {
        ASSERT_EQ(output[j], 3 * (i + j) + 3);
        ASSERT_EQ(received[j], i + j + previous);
      }
    }
  });
}

TEST_P(Group, PreparedCallsDoNotBlockInAGroup) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Exchange exchange(comm);
    const int peer = 1 - comm.rank();
    Prepared sending = comm.prepare(
        Request::send(const_buffer_of(std::span<const int64_t>(exchange.out[peer])), peer));
    group_begin();
    sending.run();
    exchange.recv(comm, peer);
    group_end();
    exchange.check(comm);
  });
}

TEST_P(Group, PreparedCallsDoNotKeepTheCommunicator) {
  run_ranks(2, [](const Job& job) {
    int64_t value = 1;
    const Buffer buffer = buffer_of(std::span(&value, 1));
    Prepared sum;
    {
      Communicator comm = Communicator::init(job);
      sum = comm.prepare(Request::all_reduce(as_const(buffer), buffer, ReduceOp::sum));
      sum.run();
    }
    EXPECT_EQ(value, 2);
    EXPECT_THROW(sum.run(), Error);
    EXPECT_THROW(sum.start(), Error);
    EXPECT_EQ(value, 2);
  });
  EXPECT_THROW(Prepared().run(), Error);
}

TEST_P(Group, HandlesReferToCalls) {
  run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    int64_t value = 7;
    const Buffer buffer = buffer_of(std::span(&value, 1));
    Work none;
    EXPECT_TRUE(none.test());
    none.abort("nothing is under way");
    if (comm.rank() == 0) {
      Work receiving = comm.recv_async(buffer, 1);
      EXPECT_FALSE(receiving.test());
      EXPECT_FALSE(receiving.wait_for(std::chrono::milliseconds(1)));
      comm.barrier();
      receiving.wait();
      EXPECT_TRUE(receiving.test());
      EXPECT_TRUE(receiving.wait_for(std::chrono::nanoseconds(0)));
      receiving.abort("too late");  // does nothing
      EXPECT_EQ(value, 8);
    } else {
      comm.barrier();
      value = 8;
      comm.send(std::span<const int64_t>(&value, 1), 0);
    }
    comm.barrier();
  });
}

TEST_P(Group, AbortOfACallReachesEveryRank) {
  const auto errors = run_ranks_catching(3, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values values(kCount, 1);
    const Buffer buffer = buffer_of(std::span(values));
    if (comm.rank() == 0) {
      Work work = comm.recv_async(buffer, 1);
      work.abort("no more patience");
      work.wait();
    }
    comm.barrier();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::aborted);
    EXPECT_THAT(error->what(), HasSubstr("rank 0 ("));
    EXPECT_THAT(error->what(), HasSubstr("no more patience"));
  }
}

// With one rank, every collective copies the only block, without waiting.
TEST(Alone, EveryCollectiveIsACopy) {
  Communicator comm = Communicator::init(Job{});
  EXPECT_EQ(comm.transport(), "none");
  const Values values = {3, 1, 4, 1, 5};
  const ConstBuffer input = const_buffer_of(std::span<const int64_t>(values));
  Values output(5);
  const Buffer out = buffer_of(std::span(output));
  const Blocks blocks{.counts = {5}};
  const std::vector<Request> copies = {
      Request::all_reduce(input, out, ReduceOp::avg),
      Request::all_gather(input, out),
      Request::all_gatherv(input, out, blocks),
      Request::reduce_scatter(input, out, ReduceOp::prod),
      Request::reduce_scatterv(input, out, blocks, ReduceOp::bxor),
      Request::broadcast(input, out, 0),
      Request::reduce(input, out, ReduceOp::max, 0),
      Request::gather(input, out, 0),
      Request::gatherv(input, out, blocks, 0),
      Request::scatter(input, out, 0),
      Request::scatterv(input, blocks, out, 0),
      Request::all_to_all(input, out),
      Request::all_to_allv(input, blocks, out, blocks),
      Request::scan(input, out, ReduceOp::sum),
  };
  for (const Request& request : copies) {
    output.assign(5, -1);
    Work work = comm.start(request);
    EXPECT_TRUE(work.test());
    EXPECT_EQ(output, values) << name(request.collective) << (request.uneven ? "v" : "");
    output.assign(5, -1);
    comm.prepare(request).run();
    EXPECT_EQ(output, values) << name(request.collective) << (request.uneven ? "v" : "");
  }
  output.assign(5, -1);
  comm.exscan(input, out);  // the output of the first rank is not changed
  EXPECT_EQ(output, Values(5, -1));
  comm.all_reduce(input, out, Reduction::premul_sum(-2));
  EXPECT_EQ(output, (Values{-6, -2, -8, -2, -10}));
  comm.barrier();
}

TEST(Alone, PartsOfLargerCommunicatorsMayHaveOneRank) {
  run_ranks(3, [](const Job& job) {
    Communicator world = Communicator::init(job);
    Communicator alone = world.split(world.rank());
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(alone.transport(), "none");
    Values values = {world.rank()};
    alone.all_reduce(std::span(values));
    EXPECT_EQ(values[0], world.rank());
  });
}

// After an exception, the thread must not be in the group any more.
TEST(GroupAlone, EndsWithItsScope) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<int32_t> values = {1, 2, 3};
    try {
      tutti::Group group;
      comm.all_reduce(std::span(values));
      throw Error(ErrorCode::invalid_argument, "on the way");
    } catch (const Error&) {
    }
    EXPECT_THROW(group_end(), Error);
    comm.barrier();  // blocks until it is complete, and runs after the all_reduce
    EXPECT_EQ(values, (std::vector<int32_t>{2, 4, 6}));
  });
}

}  // namespace
}  // namespace tutti
