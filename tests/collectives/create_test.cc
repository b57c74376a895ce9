// Tests communicators that are created by calls of their members only.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/fabrics.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

int64_t sum_over(Communicator& comm, int64_t value) {
  std::vector<int64_t> values = {value};
  comm.all_reduce(std::span(values));
  return values[0];
}

class Create : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string problem = testing::lacks(GetParam());
    if (!problem.empty()) GTEST_SKIP() << problem;
    settings().set("TUTTI_TRANSPORT", GetParam());
  }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, Create, ::testing::Values("shm", "tcp", "ucx", "ofi"),
                         [](const auto& info) { return info.param; });

// The other ranks do not call the library meanwhile.
TEST_P(Create, NeedsNoMessageFromOthers) {
  std::promise<void> done;
  std::shared_future<void> is_done = done.get_future().share();
  testing::run_ranks(5, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    world.barrier();
    if (world.rank() % 2 != 0) {
      is_done.wait();
      return;
    }
    const std::vector<int> members = {4, 0, 2};
    for (int turn = 0; turn < 20; ++turn) {
      Communicator group = world.create(members);
      EXPECT_EQ(group.size(), 3);
      EXPECT_EQ(members[group.rank()], world.rank());
      EXPECT_EQ(sum_over(group, world.rank() + turn), 6 + 3 * turn);
    }
    if (world.rank() == 0) done.set_value();
  });
}

TEST_P(Create, GroupsOverlapAndNest) {
  testing::run_ranks(4, [](const Job& job) {
    Communicator world = Communicator::init(job);
    const int r = world.rank();
    std::vector<Communicator> pairs;
    for (int other = 0; other < 4; ++other) {
      if (other == r) continue;
      const std::vector<int> members = {std::min(r, other), std::max(r, other)};
      pairs.push_back(world.create(members));
    }
    int at = 0;
    for (int other = 0; other < 4; ++other) {
      if (other == r) continue;
      EXPECT_EQ(sum_over(pairs[at++], int64_t{1} << r), (1 << r) + (1 << other));
    }
    const std::vector<int> alone = {r};
    Communicator self = world.create(alone);
    EXPECT_EQ(sum_over(self, 7), 7);
    Communicator backwards = world.create(std::vector<int>{3, 2, 1, 0});
    EXPECT_EQ(backwards.rank(), 3 - r);
    Communicator ends = backwards.rank() % 3 == 0 ? backwards.create(std::vector<int>{0, 3})
                                                  : backwards.create(std::vector<int>{2, 1});
    EXPECT_EQ(sum_over(ends, r), 3);
  });
}

// Messages that create() sends do not match messages of the caller.
TEST_P(Create, LeavesTheCallersMessagesAlone) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<int32_t> in(1);
    Work receive = world.recv_async(buffer_of(std::span(in)), kAnySource, {.tag = kAnyTag});
    EXPECT_EQ(world.probe(), std::nullopt);
    Communicator group = world.create(std::vector<int>{1, 0});
    EXPECT_EQ(sum_over(group, 1), 2);
    EXPECT_FALSE(receive.test());
    world.barrier();
    const std::vector<int32_t> out = {world.rank()};
    world.send(std::span(out), 1 - world.rank());
    receive.wait();
    EXPECT_EQ(in[0], 1 - world.rank());
  });
}

TEST_P(Create, MayBeCalledByThreadsConcurrently) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    std::vector<std::jthread> threads;
    for (int tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&world, tag] {
        for (int turn = 0; turn < 5; ++turn) {
          Communicator group = world.create(std::vector<int>{0, 1}, tag);
          EXPECT_EQ(sum_over(group, tag), 2 * tag);
        }
      });
    }
  });
}

// Rank 1 creates the groups one after another, so that it is late for the group with which rank 0
// may begin.
TEST_P(Create, GroupsOfDifferentMembersMayBeCreatedConcurrently) {
  testing::run_ranks(3, [](const Job& job) {
    Communicator world = Communicator::init(job);
    const std::vector<int> all = {0, 1, 2};
    const std::vector<int> two = {0, 1};
    for (int turn = 0; turn < 20; ++turn) {
      const auto make = [&world, turn](const std::vector<int>& members) {
        Communicator group = world.create(members);
        EXPECT_EQ(sum_over(group, turn), static_cast<int64_t>(members.size()) * turn);
      };
      if (world.rank() == 2) {
        make(all);
      } else if (world.rank() == 1) {
        make(two);
        make(all);
      } else {
        const std::jthread beside([&] { make(all); });
        make(two);
      }
    }
  });
}

// A rank cannot tell a mismatched group from one that another thread is yet to create. The call
// therefore times out, and reports what the other rank does.
TEST_P(Create, DifferentMembersTimeOut) {
  settings().set("TUTTI_TIMEOUT", "0.5");
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator world = Communicator::init(job);
    if (world.rank() == 0) world.create(std::vector<int>{0, 1});
    if (world.rank() == 1) world.create(std::vector<int>{0, 1, 2});
    world.barrier({.timeout = std::chrono::nanoseconds(0)});
  });
  settings().set("TUTTI_TIMEOUT", "300");
  ASSERT_TRUE(errors[0]);
  EXPECT_EQ(errors[0]->code(), ErrorCode::timeout) << errors[0]->what();
  EXPECT_NE(std::string(errors[0]->what()).find("create()"), std::string::npos)
      << errors[0]->what();
}

TEST_P(Create, AnotherOrderOfMembersIsAnErrorOnAll) {
  const auto errors = testing::run_ranks_catching(3, [](const Job& job) {
    Communicator world = Communicator::init(job);
    if (world.rank() == 0) world.create(std::vector<int>{0, 1});
    if (world.rank() == 1) world.create(std::vector<int>{1, 0});
    world.barrier();
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
  }
}

TEST(CreateAlone, RefusesInvalidGroups) {
  testing::run_ranks(2, [](const Job& job) {
    Communicator world = Communicator::init(job);
    const int other = 1 - world.rank();
    for (const std::vector<int>& members :
         {std::vector<int>{}, {other}, {0, 1, 0}, {0, 1, 2}, {0, 1, -1}}) {
      try {
        world.create(members);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
    }
    EXPECT_THROW(world.create(std::vector<int>{0, 1}, -1), Error);
    world.barrier();
  });
}

}  // namespace
}  // namespace tutti
