#include "training/core/arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::training {
namespace {

TEST(ArenaTest, TensorsLieSideBySideOnCacheLines) {
  Arena arena(1 << 20);
  const Tensor a = arena.take(DType::f32, 3, 5);
  const Tensor b = arena.take(DType::bf16, 1, 1);
  const Tensor c = arena.take(DType::f64, 2, 8);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
  EXPECT_EQ(b.data - a.data, 64);
  EXPECT_EQ(c.data - b.data, 64);
  EXPECT_EQ(arena.mark(), 256u);
  EXPECT_EQ(a.dtype, DType::f32);
  EXPECT_EQ(a.rows, 3);
  EXPECT_EQ(a.cols, 5);
  EXPECT_TRUE(a.contiguous());
  std::memset(a.data, 1, a.bytes());  // the memory is accessible
  std::memset(c.data, 1, c.bytes());
}

TEST(ArenaTest, GivesTheSameMemoryAgain) {
  Arena arena(1 << 20);
  const Tensor kept = arena.take(DType::f32, 1, 100);
  const size_t mark = arena.mark();
  const Tensor first = arena.take(DType::f32, 1, 100);
  arena.release(mark);
  EXPECT_EQ(arena.take(DType::f64, 1, 100).data, first.data);
  EXPECT_EQ(first.data, kept.data + 448);
  arena.release(mark);
  {
    const ArenaScope scope(arena);
    arena.take(DType::f32, 1, 1000);
    EXPECT_GT(arena.mark(), mark);
  }
  EXPECT_EQ(arena.mark(), mark);
}

TEST(ArenaTest, RemembersTheMostInUse) {
  Arena arena(1 << 20);
  arena.take(DType::f32, 1, 16);
  const size_t mark = arena.mark();
  arena.take(DType::f32, 1, 160);
  arena.release(mark);
  arena.take(DType::f32, 1, 16);
  EXPECT_EQ(arena.high_water(), 11 * 64u);
}

TEST(ArenaTest, EmptyTensorsTakeNothing) {
  Arena arena(4096);
  EXPECT_TRUE(arena.take(DType::f32, 0, 7).empty());
  EXPECT_EQ(arena.mark(), 0u);
}

TEST(ArenaTest, RefusesMoreThanThereIsAndStaysUsable) {
  Arena arena(4096);
  arena.take(DType::f32, 1, 1024 - 16);
  try {
    arena.take(DType::f32, 1, 17);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
  EXPECT_NO_THROW(arena.take(DType::f32, 1, 16));
  EXPECT_THROW(arena.take(DType::f32, 1, 1), Error);
}

// During its lifetime, limits this process's address space, so that a larger reservation fails.
class LimitedAddresses {
 public:
  LimitedAddresses() {
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit finite{.rlim_cur = rlim_t{1} << 62, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &finite);
  }
  ~LimitedAddresses() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// Tensors of different sizes follow each other without a gap. Memory of released tensors is used
// again, so that no more pages are touched than were in use at one time.
TEST(ArenaTest, TakesOneRowOfAddressesOnAHost) {
  Arena arena;
  const std::byte* end = nullptr;
  for (const int64_t floats : {16, 4 << 20, 16, 32 << 20, 1 << 20, 64 << 20}) {
    const Tensor taken = arena.take(DType::f32, 1, floats);
    if (end != nullptr) {
      EXPECT_EQ(taken.data, end) << floats;
    }
    end = taken.data + taken.bytes();
  }
}

// Each chunk is allocated when the previous one is full. Memory in use does not move.
TEST(ArenaTest, GrowsByChunksAndGivesThemBackInOrder) {
  const LimitedAddresses limited;
  Arena arena(size_t{1} << 30);
  constexpr int64_t kRow = 1000 * 1000;  // floats: no two of them fit into the first chunk
  std::vector<Tensor> taken;
  std::vector<size_t> marks;
  for (int i = 0; i < 40; ++i) {
    marks.push_back(arena.mark());
    taken.push_back(arena.take(DType::f32, 1, kRow));
    const auto values = taken.back().values<float>();
    values.front() = values.back() = static_cast<float>(i);
  }
  EXPECT_EQ(arena.mark(), 40 * kRow * sizeof(float)) << "gaps at the ends of chunks do not count";
  for (int i = 0; i < 40; ++i) {
    const auto values = taken[static_cast<size_t>(i)].values<float>();
    EXPECT_EQ(values.front(), static_cast<float>(i));
    EXPECT_EQ(values.back(), static_cast<float>(i));
  }
  for (const size_t kept : {size_t{17}, size_t{1}, size_t{0}}) {
    arena.release(marks[kept]);
    EXPECT_EQ(arena.mark(), marks[kept]);
    for (size_t i = kept; i < taken.size(); ++i) {
      EXPECT_EQ(arena.take(DType::f32, 1, kRow).data, taken[i].data) << "no new memory";
    }
  }
  // An object larger than the existing chunks skips them when it is taken and when it is released.
  arena.release(marks[3]);
  const Tensor large = arena.take(DType::f32, 100, kRow);
  large.values<float>().back() = 1;
  arena.release(marks[3]);
  EXPECT_EQ(arena.take(DType::f32, 1, kRow).data, taken[3].data);
}

// Creates an arena for each of many micro-batches in flight, with scarce address space.
TEST(ArenaTest, ManyTakeNoMoreAddressesThanTheyNeed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t room =
      static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{6} << 30);
  const rlimit scarce{.rlim_cur = room, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &scarce), 0);
  std::deque<Arena> arenas;
  EXPECT_NO_THROW({
    for (int i = 0; i < 1024; ++i) {
      arenas.emplace_back();
      arenas.back().take(DType::f32, 1, 1000);
    }
  });
  EXPECT_EQ(arenas.size(), 1024u);
  ::setrlimit(RLIMIT_AS, &before);
}

// Reserves far more than any machine's memory, because address space costs nothing.
TEST(ArenaTest, ReservesAddressesNotMemory) {
  Arena arena(size_t{1} << 40);
  const Tensor huge = arena.take(DType::f32, 1 << 20, 1 << 13);
  huge.values<float>().back() = 1;
  EXPECT_EQ(huge.values<float>().back(), 1);
}

TEST(TensorTest, Parts) {
  std::vector<float> memory(20);
  const Tensor tensor = tensor_at(memory.data(), DType::f32, 4, 5);
  const Tensor part = tensor.row_range(1, 2).col_range(3, 2);
  EXPECT_EQ(part.at(1, 1), reinterpret_cast<std::byte*>(&memory[14]));
  EXPECT_EQ(part.size(), 4);
  EXPECT_FALSE(part.contiguous());
  EXPECT_TRUE(part.row_range(0, 1).contiguous());
  EXPECT_EQ(tensor.bytes(), 80u);
}

TEST(Tensor, RejectsAccessAsAnotherType) {
  std::vector<std::byte> memory(64);
  const auto of = [&](DType type) { return tensor_at(memory.data(), type, 2, 4); };
  EXPECT_EQ(of(DType::f32).values<float>().size(), 8u);
  EXPECT_EQ(of(DType::bf16).values<uint16_t>().size(), 8u);
  EXPECT_THROW((void)of(DType::bf16).values<float>(), Error);
  EXPECT_THROW((void)of(DType::i32).values<float>(), Error);
  EXPECT_THROW((void)of(DType::f32).values<double>(), Error);
  EXPECT_THROW((void)of(DType::u8).values<uint16_t>(), Error);
}

}  // namespace
}  // namespace tutti::training
