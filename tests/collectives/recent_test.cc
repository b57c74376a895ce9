// Tests the cache of recent calls.
#include "collectives/runtime/device/recent.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace tutti::internal {
namespace {

using Cache = Recent<int, std::string, std::hash<int>>;

TEST(Recent, KeepsTheEntriesThatWereUsedLast) {
  Cache cache(10);
  for (int key = 0; key < 11; ++key) {
    EXPECT_TRUE(cache.take_old().empty());
    cache.add(key, std::to_string(key));
  }
  ASSERT_NE(cache.find(0), nullptr);  // the oldest entry becomes the newest one
  EXPECT_EQ(*cache.find(0), "0");
  const std::vector<std::string> old = cache.take_old();
  EXPECT_EQ(old.size(), 5u);
  EXPECT_EQ(cache.size(), 6u);
  for (int key = 1; key <= 5; ++key) EXPECT_EQ(cache.find(key), nullptr) << key;
  for (const int key : {0, 6, 7, 8, 9, 10}) EXPECT_NE(cache.find(key), nullptr) << key;
}

TEST(Recent, HoldsLittleMoreThanTheMaximum) {
  Cache cache(100);
  size_t taken = 0;
  for (int key = 0; key < 10'000; ++key) {
    taken += cache.take_old().size();
    cache.add(key, "");
    EXPECT_LE(cache.size(), 101u);
  }
  EXPECT_EQ(taken + cache.size(), 10'000u);
}

}  // namespace
}  // namespace tutti::internal
