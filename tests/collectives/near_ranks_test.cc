// Tests groups of ranks that share a cache or a NUMA node of a host. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

// Returns true if `algorithm` gives every rank the sum, false if it is refused.
bool sums(Communicator& comm, std::string_view algorithm) {
  std::vector<float> values(1000, static_cast<float>(comm.rank() + 1));
  const Buffer buffer{values.data(), values.size(), DType::f32};
  const ConstBuffer input{values.data(), values.size(), DType::f32};
  try {
    comm.all_reduce(input, buffer, ReduceOp::sum, {.algorithm = algorithm});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    return false;
  }
  const int ranks = comm.size();
  EXPECT_THAT(values, ::testing::Each(static_cast<float>(ranks * (ranks + 1) / 2)));
  return true;
}

// Returns true if the ranks of a job with these places have groups.
bool has_groups(const std::vector<Domain>& places) {
  std::vector<char> grouped(places.size());
  testing::run_ranks(static_cast<int>(places.size()), [&](Job job) {
    const auto rank = static_cast<size_t>(job.rank);
    job.domain = places[rank];
    Communicator comm = Communicator::init(job);
    grouped[rank] = sums(comm, "hierarchical");
    EXPECT_EQ(sums(comm, "hierarchical(ring,ring,ring)"), grouped[rank] != 0);
    EXPECT_TRUE(sums(comm, "auto"));
  });
  EXPECT_THAT(grouped, ::testing::Each(grouped[0])) << "all ranks see it alike";
  return grouped[0] != 0;
}

TEST(NearRanks, RanksOfOneHostShareACacheOrElseANode) {
  EXPECT_TRUE(has_groups({{0, 0}, {0, 0}, {1, 1}, {1, 1}}));
  EXPECT_TRUE(has_groups({{0, 0}, {0, 1}, {1, 2}, {1, 3}}));
  EXPECT_TRUE(has_groups({{0, 2}, {0, 2}, {0, 2}, {0, 4}, {0, 4}, {0, 4}}));
}

TEST(NearRanks, GroupsMayBeUnequal) {
  EXPECT_TRUE(has_groups({{0, 0}, {0, 0}, {0, 0}, {1, 1}}));
  EXPECT_TRUE(has_groups({{0, 0}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 2}, {1, 2}}));
}

TEST(NearRanks, RanksOfAGroupNeedNotBeNeighbours) {
  EXPECT_TRUE(has_groups({{0, 0}, {1, 1}, {0, 0}, {1, 1}}));
  EXPECT_TRUE(has_groups({{1, 3}, {0, 0}, {1, 2}, {0, 1}, {0, 0}, {1, 3}, {1, 2}}));
}

TEST(NearRanks, AllRanksAreNearIfNothingSeparatesThem) {
  EXPECT_FALSE(has_groups({{}, {}, {}, {}}));
  EXPECT_FALSE(has_groups({{0, 0}, {0, 0}, {0, 0}, {0, 0}}));
  EXPECT_FALSE(has_groups({{0, 0}, {0, 0}, {}, {}}));
}

TEST(NearRanks, SplitFindsTheGroupsAgain) {
  testing::run_ranks(8, [](Job job) {
    job.domain = {.numa_node = 0, .cache = job.rank / 4};
    Communicator comm = Communicator::init(job);
    EXPECT_TRUE(sums(comm, "hierarchical"));
    Communicator every_other = comm.split(comm.rank() % 2, 0);  // the caches are 0 0 1 1
    EXPECT_TRUE(sums(every_other, "hierarchical"));
    Communicator one_cache = comm.split(comm.rank() / 4, 0);
    EXPECT_FALSE(sums(one_cache, "hierarchical"));
  });
}

}  // namespace
}  // namespace tutti
