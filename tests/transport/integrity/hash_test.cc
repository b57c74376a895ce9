#include "transport/integrity/hash.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tutti {
namespace {

std::vector<std::byte> random_bytes(size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<InstructionSet> available() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : kAllInstructionSets) {
    if (is_available(set)) sets.push_back(set);
  }
  return sets;
}

// Hosts with different processors verify each other's hashes.
TEST(IntegrityHash, AllInstructionSetsGiveTheSame) {
  for (const size_t size : {0, 1, 8, 48, 240, 241, 1023, 1024, 4097, 512 << 10}) {
    const std::vector<std::byte> bytes = random_bytes(size + 1);
    const std::span<const std::byte> odd = std::span(bytes).subspan(1);  // at an odd address
    for (const uint64_t seed : {0, 1, 77}) {
      const uint64_t expected = integrity_hash(odd, seed);
      for (const InstructionSet set : available()) {
        EXPECT_EQ(integrity_hash_by(set, odd, seed), expected) << name(set) << ' ' << size;
      }
    }
  }
}

// Compares with known hashes, so that another library or version of xxHash is noticed.
TEST(IntegrityHash, MatchesXxh3) {
  EXPECT_EQ(integrity_hash({}), 0x2d06800538d394c2U);
  EXPECT_EQ(integrity_hash(std::as_bytes(std::span("abc", 3))), 0x78af5f94892f3950U);
}

TEST(IntegrityHash, ChangesWithEachSwapOfWords) {
  for (const InstructionSet set : available()) {
    for (const size_t size : {6, 64, 1000, 5000}) {
      std::vector<std::byte> bytes = random_bytes(size);
      const uint64_t right = integrity_hash_by(set, bytes, 0);
      for (size_t at = 0; at + 4 <= size; ++at) {
        const auto first = bytes.begin() + static_cast<ptrdiff_t>(at);
        if (std::equal(first, first + 2, first + 2)) continue;
        std::swap_ranges(first, first + 2, first + 2);
        ASSERT_NE(integrity_hash_by(set, bytes, 0), right) << name(set) << ' ' << size << ' ' << at;
        std::swap_ranges(first, first + 2, first + 2);
      }
    }
  }
}

}  // namespace
}  // namespace tutti
