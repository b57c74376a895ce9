#include "training/data/permutation.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace tutti::training {
namespace {

std::vector<uint64_t> order(uint64_t key, uint64_t size) {
  std::vector<uint64_t> places;
  for (uint64_t i = 0; i < size; ++i) places.push_back(permute(key, i, size));
  return places;
}

TEST(PermutationTest, IsABijectionOfEverySize) {
  for (uint64_t size = 1; size <= 1100; ++size) {
    std::vector<bool> seen(size);
    for (const uint64_t place : order(7, size)) {
      ASSERT_LT(place, size);
      ASSERT_FALSE(seen[place]) << place << " twice of " << size;
      seen[place] = true;
    }
  }
}

TEST(PermutationTest, WorksOnHugeSets) {
  for (const uint64_t size : {uint64_t{1} << 40, (uint64_t{1} << 40) + 1, UINT64_MAX}) {
    std::map<uint64_t, uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t place = permute(7, size - 1 - i, size);
      EXPECT_LT(place, size);
      EXPECT_TRUE(seen.emplace(place, i).second);
    }
  }
}

// All 6 orders of 3 elements are equally frequent: of 6 000 keys, 1 000 are expected to give each
// order, with a standard deviation of 29.
TEST(PermutationTest, AllOrdersAreEquallyLikely) {
  std::map<std::vector<uint64_t>, int> times;
  for (uint64_t key = 0; key < 6000; ++key) ++times[order(key, 3)];
  EXPECT_EQ(times.size(), 6u);
  for (const auto& [places, count] : times) EXPECT_NEAR(count, 1000, 120);
}

// The new position of an index is uniform, and so is the distance between the new positions of two
// neighbours (both modulo 10).
TEST(PermutationTest, PlacesAndDistancesAreUniform) {
  constexpr uint64_t kSize = 10;
  std::vector<int> places(kSize);
  std::vector<int> distances(kSize);
  for (uint64_t key = 0; key < 9000; ++key) {
    const uint64_t here = permute(key, 4, kSize);
    const uint64_t next = permute(key, 5, kSize);
    ++places[here];
    ++distances[(next + kSize - here) % kSize];
  }
  for (const int count : places) EXPECT_NEAR(count, 900, 120);
  for (uint64_t d = 1; d < kSize; ++d) EXPECT_NEAR(distances[d], 1000, 120);
}

}  // namespace
}  // namespace tutti::training
