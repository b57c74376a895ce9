// Tests one thread that acts as all ranks of a job: it begins to join for each rank, and makes
// their calls in groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
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

using Values = std::vector<int64_t>;

class OneThread : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, OneThread, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

// The communicators of all ranks. The last rank leaves first, so that no rank waits for a later
// one.
struct Ranks : std::vector<Communicator> {
  Ranks() = default;
  Ranks(Ranks&&) = default;
  ~Ranks() {
    while (!empty()) pop_back();
  }
};

Ranks join_all(int size) {
  testing::LocalRendezvous rendezvous;
  std::vector<std::future<Communicator>> joining;
  for (int rank = 0; rank < size; ++rank) {
    joining.push_back(Communicator::init_async(rendezvous.job(rank, size)));
  }
  Ranks ranks;
  for (std::future<Communicator>& one : joining) ranks.push_back(one.get());
  return ranks;
}

TEST_P(OneThread, OneThreadRunsEveryRank) {
  for (const int size : {1, 2, 3, 5, 8}) {
    Ranks ranks = join_all(size);
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{100'003}}) {
      std::vector<Values> sums;
      std::vector<Values> all(static_cast<size_t>(size), Values(count * static_cast<size_t>(size)));
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(ranks[static_cast<size_t>(rank)].rank(), rank);
        sums.emplace_back(count, 1 << rank);
      }
      const std::vector<Values> inputs = sums;
      group_begin();
      for (size_t r = 0; r < ranks.size(); ++r) ranks[r].all_reduce(std::span(sums[r]));
      for (size_t r = 0; r < ranks.size(); ++r) {
        ranks[r].all_gather(const_buffer_of(std::span<const int64_t>(inputs[r])),
                            buffer_of(std::span(all[r])));
      }
      group_end();
      for (size_t r = 0; r < ranks.size(); ++r) {
        EXPECT_EQ(sums[r], Values(count, (1 << size) - 1));
        EXPECT_EQ(all[r], all[0]);
        for (size_t other = 0; other < ranks.size(); ++other) {
          EXPECT_EQ(all[r][other * count], 1 << other);
        }
      }
    }
  }
}

TEST_P(OneThread, SendsToItself) {
  Ranks ranks = join_all(3);
  Values received(3, -1);
  const Values sent = {10, 11, 12};
  group_begin();
  for (int r = 0; r < 3; ++r) {
    ranks[static_cast<size_t>(r)].send(std::span(&sent[static_cast<size_t>(r)], 1), (r + 1) % 3);
    ranks[static_cast<size_t>(r)].recv(std::span(&received[static_cast<size_t>(r)], 1),
                                       (r + 2) % 3);
  }
  group_end();
  EXPECT_THAT(received, ::testing::ElementsAre(12, 10, 11));
}

// A group contains calls of two ranks and of another job of one rank. All of them must complete.
TEST_P(OneThread, AGroupRunsCallsOfSeveralRanks) {
  Ranks ranks = join_all(2);
  Ranks alone = join_all(1);
  std::vector<Values> values(3, Values(1000, 1));
  group_begin();
  alone[0].all_reduce(std::span(values[2]));
  for (size_t r = 0; r < 2; ++r) ranks[r].all_reduce(std::span(values[r]));
  std::vector<Work> works = group_end_async();
  ASSERT_EQ(works.size(), 3);
  EXPECT_TRUE(internal::of_several_ranks(works));
  EXPECT_FALSE(internal::of_several_ranks({works[0], works[1]})) << "the first is of no rank";
  const auto in_flight = [](Work& work) { return work.poll() == WorkState::in_flight; };
  while (std::ranges::count_if(works, in_flight) > 0) {
  }
}

TEST_P(OneThread, ReportsMismatches) {
  Ranks ranks = join_all(4);
  std::vector<Values> values(4, Values(100, 1));
  values[2].resize(99);
  Group group;  // a rank that has already detected the mismatch throws from its calls
  try {
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].all_reduce(std::span(values[r]));
    group.end();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  }
}

TEST_P(OneThread, MayPollItsCalls) {
  Ranks ranks = join_all(3);
  std::vector<Values> values(3, Values(10'000, 2));
  std::vector<Work> works;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Buffer buffer = buffer_of(std::span(values[r]));
    works.push_back(ranks[r].all_reduce_async(as_const(buffer), buffer));
  }
  for (bool in_flight = true; in_flight;) {
    in_flight = false;
    for (Work& work : works) in_flight = work.poll() == WorkState::in_flight || in_flight;
  }
  EXPECT_EQ(values[1], Values(10'000, 6));
}

TEST(InitAsync, ThrowsErrorsWhenTheResultIsRequested) {
  testing::LocalRendezvous rendezvous;
  Job job = rendezvous.job(1, 2);  // no process is rank 0
  job.init_timeout = std::chrono::milliseconds(300);
  std::future<Communicator> joining = Communicator::init_async(job);
  EXPECT_THROW(joining.get(), Error);
}

}  // namespace
}  // namespace tutti
