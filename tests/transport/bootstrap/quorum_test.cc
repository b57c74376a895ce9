#include "transport/bootstrap/membership/quorum.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tutti::bootstrap {
namespace {

// Returns true if the ranks in `present` may decide when those in `ended` have ended. Both are sets
// of bits; all ranks in `present` reach each other.
bool decides(int size, unsigned present, unsigned ended) {
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return Quorum::of(
             members, [&](int rank) { return (present >> rank & 1) == 0; },
             [&](int rank) { return (ended >> rank & 1) != 0; })
      .decides();
}

// At most one of two disjoint sets may decide, whichever ranks have ended.
TEST(Quorum, IntersectsEveryOtherQuorumUnlessMembersHaveEnded) {
  for (int size = 1; size <= 7; ++size) {
    const unsigned all = (1U << size) - 1;
    for (unsigned one = 0; one <= all; ++one) {
      if (!decides(size, one, 0)) continue;
      for (unsigned ended = 0; ended <= all; ++ended) {
        for (unsigned other = all & ~ended; other > 0; other = (other - 1) & all & ~ended) {
          if ((one & other) != 0 || !decides(size, other, ended)) continue;
          EXPECT_EQ(one & ~ended, 0U)
              << size << " members: " << one << " and " << other << ", ended " << ended;
        }
      }
    }
  }
}

TEST(Quorum, IsAMajorityOfTheOriginalMembers) {
  EXPECT_TRUE(decides(5, 0b00111, 0));
  EXPECT_FALSE(decides(5, 0b00011, 0));
  EXPECT_FALSE(decides(5, 0b00011, 0b11000)) << "ranks 0 and 1, rank 2 is out of reach";
}

TEST(Quorum, HalfTheMembersNeedTheFirst) {
  EXPECT_TRUE(decides(4, 0b0011, 0));
  EXPECT_FALSE(decides(4, 0b1100, 0));
  EXPECT_FALSE(decides(4, 0b1100, 0b0001)) << "rank 1 may have decided with rank 0";
}

TEST(Quorum, AnyNumberDecidesIfAllOthersHaveEnded) {
  EXPECT_TRUE(decides(4, 0b1100, 0b0011));
  EXPECT_TRUE(decides(8, 0b10000000, 0b01111111));
}

}  // namespace
}  // namespace tutti::bootstrap
