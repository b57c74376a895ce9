// Tests bench/pattern.h: the reduction of the data must be exact in every order.
#include "bench/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"

namespace tutti::bench {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kCount = 700;

Bytes input_of(DType dtype, ReduceOp op, int ranks, int rank) {
  Bytes data(kCount * size_of(dtype));
  fill_pattern(dtype, op, ranks, rank, 0, kCount, data.data());
  if (op == ReduceOp::premul_sum) {
    scale(data.data(), data.data(), kCount, dtype, pattern_factor(rank));
  }
  return data;
}

// Reduces the inputs in this order, and rounds to elements after every operation.
Bytes reduced(DType dtype, ReduceOp op, int ranks, const std::vector<int>& order) {
  Bytes result = input_of(dtype, op, ranks, order.front());
  for (size_t i = 1; i < order.size(); ++i) {
    const Bytes next = input_of(dtype, op, ranks, order[i]);
    reduce_kernel(dtype, op)(result.data(), result.data(), next.data(), kCount, {});
  }
  if (op == ReduceOp::avg) {
    mean(result.data(), result.data(), nullptr, kCount, dtype, static_cast<int>(order.size()));
  }
  return result;
}

TEST(Pattern, IsExactInEveryOrder) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (op == ReduceOp::user || !supports(op, dtype)) continue;
      for (const int ranks : {1, 2, 3, 8, 40}) {
        for (const int combined : {1, (ranks + 1) / 2, ranks}) {
          SCOPED_TRACE(cat(name(dtype), ' ', name(op), ' ', combined, " of ", ranks));
          Bytes expected(kCount * size_of(dtype));
          fill_combined(dtype, op, ranks, combined, 0, kCount, expected.data());
          std::vector<int> order(combined);
          std::iota(order.begin(), order.end(), 0);
          EXPECT_EQ(reduced(dtype, op, ranks, order), expected);
          std::ranges::reverse(order);
          EXPECT_EQ(reduced(dtype, op, ranks, order), expected);
        }
      }
    }
  }
}

TEST(Pattern, ShowsWhichRankIsMissing) {
  for (const DType dtype : {DType::f32, DType::f8e4m3, DType::u8, DType::i64_i64}) {
    const ReduceOp op = is_pair(dtype) ? ReduceOp::minloc : ReduceOp::sum;
    const Bytes all = reduced(dtype, op, 3, {0, 1, 2});
    for (const std::vector<int>& some : {std::vector{0, 1}, {0, 2}, {1, 2}}) {
      EXPECT_NE(reduced(dtype, op, 3, some), all) << name(dtype);
    }
  }
}

TEST(Pattern, ComposesInOrder) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64, DType::f64_i64}) {
    SCOPED_TRACE(name(dtype));
    const auto composed = [&](const Bytes& a, const Bytes& b) {
      Bytes result(a.size());
      compose(result.data(), a.data(), b.data(), kCount, dtype);
      return result;
    };
    const Bytes a = input_of(dtype, ReduceOp::user, 3, 0);
    const Bytes b = input_of(dtype, ReduceOp::user, 3, 1);
    const Bytes c = input_of(dtype, ReduceOp::user, 3, 2);
    EXPECT_EQ(composed(composed(a, b), c), composed(a, composed(b, c)));
    EXPECT_NE(composed(a, b), composed(b, a));
    Bytes expected(a.size());
    fill_combined(dtype, ReduceOp::user, 3, 3, 0, kCount, expected.data());
    EXPECT_EQ(composed(composed(a, b), c), expected);
  }
}

TEST(Pattern, RepeatsAfterAPeriod) {
  const uint64_t count = 3 * kPatternPeriod + 5;
  std::vector<int64_t> whole(count);
  fill_pattern(DType::i64, ReduceOp::sum, 2, 1, 0, count, whole.data());
  for (uint64_t i = kPatternPeriod; i < count; ++i) {
    ASSERT_EQ(whole[i], whole[i - kPatternPeriod]) << i;
  }
  for (const uint64_t first : {uint64_t{1}, kPatternPeriod - 1, kPatternPeriod + 7}) {
    std::vector<int64_t> part(2 * kPatternPeriod - 8);
    fill_pattern(DType::i64, ReduceOp::sum, 2, 1, first, part.size(), part.data());
    EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + first, part.size() * 8)) << first;
  }
}

TEST(Pattern, CountsWrongElements) {
  std::vector<uint16_t> a(100, 7);
  std::vector<uint16_t> b = a;
  EXPECT_EQ(count_wrong(DType::u16, a.data(), b.data(), a.size()), 0);
  b[0] = b[99] = 0x0107;
  EXPECT_EQ(count_wrong(DType::u16, a.data(), b.data(), a.size()), 2);
  EXPECT_EQ(count_wrong(DType::u16, nullptr, nullptr, 0), 0);
}

}  // namespace
}  // namespace tutti::bench
