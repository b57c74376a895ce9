// Tests that pages are written and read in the order of the requests.
#include "training/offload/pager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tests/training/data/folder.h"
#include "tests/training/offload/resident.h"
#include "training/offload/file_arena.h"

namespace tutti::training {
namespace {

using testing::resident_bytes;

constexpr size_t kBytes = size_t{1} << 18;

class Pagers : public FolderTest {};

TEST_F(Pagers, MovePagesInOrder) {
  Pager pager(path(""));
  const std::shared_ptr<std::byte[]> memory = pager.allocate(kBytes);
  const std::span<std::byte> all(memory.get(), kBytes);
  std::ranges::fill(all, std::byte{3});
  const PageRange range{all, true};
  pager.start_writing({&range, 1});
  pager.wait(pager.evict({&range, 1}));
  EXPECT_EQ(resident_bytes(all), 0U);
  pager.evict({&range, 1});
  pager.wait(pager.fetch({&range, 1}));
  EXPECT_EQ(resident_bytes(all), kBytes);
  EXPECT_EQ(std::ranges::count(all, std::byte{3}), static_cast<ptrdiff_t>(kBytes));
}

TEST_F(Pagers, KnowTheirMemory) {
  Pager pager(path(""));
  const std::shared_ptr<std::byte[]> one = pager.allocate(kBytes);
  const std::shared_ptr<std::byte[]> two = pager.allocate(100);
  EXPECT_EQ(pager.allocate(0), nullptr);
  EXPECT_EQ(pager.bytes(), kBytes + 100);
  EXPECT_TRUE(pager.holds(one.get() + kBytes - 1));
  EXPECT_TRUE(pager.holds(two.get() + 99));
  EXPECT_FALSE(pager.holds(two.get() + 100));
  std::vector<std::byte> other(10);
  EXPECT_FALSE(pager.holds(other.data()));
  const PageRange range{other, true};
  pager.wait(pager.fetch({&range, 1}));  // nothing to do
}

TEST_F(Pagers, HaveMemoryForArenas) {
  Pager pager(path(""));
  FileArena arena(pager);
  std::byte* const first = arena.take(1000);
  std::byte* const second = arena.take(size_t{3} << 20);
  std::byte* const third = arena.take(1);
  first[999] = second[(size_t{3} << 20) - 1] = third[0] = std::byte{1};
  EXPECT_GE(arena.high_water(), (size_t{3} << 20) + 1001);
  const size_t bytes = pager.bytes();
  arena.release();
  EXPECT_EQ(arena.take(1000), first);
  EXPECT_EQ(arena.take(size_t{3} << 20), second);
  EXPECT_EQ(pager.bytes(), bytes);
}

}  // namespace
}  // namespace tutti::training
