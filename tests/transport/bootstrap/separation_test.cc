#include "transport/bootstrap/membership/separation.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::bootstrap {
namespace {

using Pairs = std::vector<std::pair<size_t, size_t>>;

// `hosts` has a letter for the host of each member, in lower case if the member has left. Returns
// the members that stay; '.' stands for the others.
std::string left(const std::string& hosts, const Pairs& broken) {
  std::vector<bool> living;
  std::vector<std::string> names;
  for (const char host : hosts) {
    living.push_back(host >= 'A' && host <= 'Z');
    names.emplace_back(1, host);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  living = separate(std::move(living), views, broken);
  std::string text;
  for (size_t place = 0; place < hosts.size(); ++place) text += living[place] ? hosts[place] : '.';
  return text;
}

TEST(Separation, RemovesNobodyIfAllReachEachOther) { EXPECT_EQ(left("AABB", {}), "AABB"); }

TEST(Separation, OnePairRemovesAWholeHost) {
  EXPECT_EQ(left("AABBCC", {{3, 4}}), "AABB..");
  EXPECT_EQ(left("AABBCC", {{4, 3}}), "AABB..") << "whoever noticed it";
}

TEST(Separation, RemovesTheSmallerHost) {
  EXPECT_EQ(left("AABCC", {{2, 3}}), "AA.CC");
  EXPECT_EQ(left("ABBCC", {{0, 3}}), ".BBCC") << "the first rank's as well";
}

TEST(Separation, RemovesOneHostThatManyDoNotReach) {
  EXPECT_EQ(left("ABCD", {{1, 0}, {1, 2}, {3, 1}}), "A.CD");
  EXPECT_EQ(left("ABBBCD", {{1, 0}, {2, 4}, {3, 5}}), "A...CD") << "although it has more members";
}

TEST(Separation, RemovesTheSmallerSideOfACut) {
  EXPECT_EQ(left("ABCDE", {{0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}}), "..CDE");
}

TEST(Separation, IgnoresMembersThatHaveLeft) { EXPECT_EQ(left("AABbCC", {{3, 4}}), "AAB.CC"); }

TEST(Separation, RemovesTheLaterOfTwoRanksOnOneHost) { EXPECT_EQ(left("AAA", {{2, 1}}), "AA."); }

}  // namespace
}  // namespace tutti::bootstrap
