#include "training/arena.h"

#include <gtest/gtest.h>

#include <cstring>

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
  std::memset(a.data, 1, a.bytes());  // the memory is there
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

// Far more than any machine has: addresses cost nothing.
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

}  // namespace
}  // namespace tutti::training
