// Tests messages that a rank sends to itself.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using Values = std::vector<int64_t>;

std::span<const int64_t> sent(const Values& values) { return values; }

class OwnMessages : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, OwnMessages, ::testing::Values(1, 3));

TEST_P(OwnMessages, AreReceivedInTheOrderOfSends) {
  testing::run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    comm.send(sent({1, 2, 3}), comm.rank());
    comm.send(sent({}), comm.rank());
    comm.send(sent({4}), comm.rank());
    Values first(3);
    Values second;
    Values third(1);
    comm.recv(std::span(first), comm.rank());
    comm.recv(std::span(second), comm.rank());
    comm.recv(std::span(third), comm.rank());
    EXPECT_EQ(first, Values({1, 2, 3}));
    EXPECT_EQ(third, Values({4}));
  });
}

TEST_P(OwnMessages, CompleteReceivesThatWaitForThem) {
  testing::run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values first(100'000);
    Values second(1);
    Work one = comm.recv_async(buffer_of(std::span(first)), comm.rank());
    Work two = comm.recv_async(buffer_of(std::span(second)), comm.rank());
    EXPECT_FALSE(one.test());
    comm.send(sent(Values(first.size(), 7)), comm.rank());
    EXPECT_TRUE(one.test());
    EXPECT_FALSE(two.test());
    Work three = comm.send_async(const_buffer_of(sent({5})), comm.rank());
    two.wait();
    three.wait();
    EXPECT_EQ(first, Values(first.size(), 7));
    EXPECT_EQ(second, Values({5}));
  });
}

TEST_P(OwnMessages, WorkInGroupsWithMessagesToOthers) {
  testing::run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<Values> in(comm.size(), Values(1));
    std::vector<Values> out;
    for (int peer = 0; peer < comm.size(); ++peer) out.push_back({10 * comm.rank() + peer});
    group_begin();
    for (int peer = 0; peer < comm.size(); ++peer) {
      comm.recv(std::span(in[peer]), peer);
      comm.send(sent(out[peer]), peer);
    }
    group_end();
    for (int peer = 0; peer < comm.size(); ++peer) {
      EXPECT_EQ(in[peer], Values({10 * peer + comm.rank()}));
    }
  });
}

TEST_P(OwnMessages, ArePreparedAndStartedManyTimes) {
  testing::run_ranks(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values out(1000);
    Values in(1000);
    Prepared send = comm.prepare(Request::send(const_buffer_of(sent(out)), comm.rank()));
    Prepared recv = comm.prepare(Request::recv(buffer_of(std::span(in)), comm.rank()));
    for (int64_t turn = 0; turn < 10; ++turn) {
      out.assign(out.size(), turn);
      Work work = turn % 2 == 0 ? send.start() : recv.start();
      (turn % 2 == 0 ? recv : send).run();
      work.wait();
      ASSERT_EQ(in, out);
    }
  });
}

TEST_P(OwnMessages, AnotherLengthIsAnErrorOnAllRanks) {
  for (const bool receives_first : {false, true}) {
    const auto errors = testing::run_ranks_catching(GetParam(), [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      if (comm.rank() == 0) {
        Values in(2);
        Work work;
        if (receives_first) work = comm.recv_async(buffer_of(std::span(in)), 0);
        comm.send(sent({1}), 0);
        if (!receives_first) comm.recv(std::span(in), 0);
        work.wait();
      }
      comm.barrier();
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
  }
}

TEST_P(OwnMessages, MissingMessagesAreReported) {
  const auto errors = testing::run_ranks_catching(GetParam(), [](const Job& job) {
    Communicator comm = Communicator::init(job);
    Values in(1);
    if (comm.rank() == 0) {
      Request request = Request::recv(buffer_of(std::span(in)), 0);
      comm.run(request, {.timeout = std::chrono::milliseconds(300)});
    }
    comm.barrier();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::timeout);
    EXPECT_NE(std::string(error->what()).find("to itself that it has not sent"), std::string::npos)
        << error->what();
  }
}

}  // namespace
}  // namespace tutti
