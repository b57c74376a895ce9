// Tests bench/rounding.h: data whose sum depends on the order, and the canonical result.
#include "bench/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/text.h"
#include "bench/pattern.h"

namespace tutti::bench {
namespace {

constexpr uint64_t kCount = 4000;

template <typename T>
std::vector<T> input_of(DType dtype, ReduceOp op, int ranks, int rank) {
  std::vector<T> values(kCount);
  fill_rounding(dtype, op, ranks, rank, 0, kCount, values.data());
  return values;
}

template <typename T>
std::vector<T> canonical(DType dtype, ReduceOp op, int ranks, int combined) {
  std::vector<T> values(kCount);
  fill_canonical(dtype, op, ranks, combined, 0, kCount, values.data());
  return values;
}

template <typename T>
uint64_t differing(const std::vector<T>& a, const std::vector<T>& b) {
  uint64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  return count;
}

TEST(Rounding, FiveRanksAreCombinedAsPairsOfPairs) {
  std::vector<std::vector<float>> x;
  for (int rank = 0; rank < 5; ++rank) {
    x.push_back(input_of<float>(DType::f32, ReduceOp::sum, 5, rank));
  }
  std::vector<float> tree(kCount);
  std::vector<float> chain(kCount);
  std::vector<float> backwards(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    tree[i] = ((x[0][i] + x[1][i]) + (x[2][i] + x[3][i])) + x[4][i];
    chain[i] = (((x[0][i] + x[1][i]) + x[2][i]) + x[3][i]) + x[4][i];
    backwards[i] = x[0][i] + (x[1][i] + ((x[2][i] + x[3][i]) + x[4][i]));
  }
  const std::vector<float> result = canonical<float>(DType::f32, ReduceOp::sum, 5, 5);
  EXPECT_EQ(differing(result, tree), 0);
  EXPECT_GT(differing(result, chain), kCount / 10) << "another order, other bits";
  EXPECT_GT(differing(result, backwards), kCount / 10);
  // Rank 2 gets this result of a scan.
  std::vector<float> three(kCount);
  for (uint64_t i = 0; i < kCount; ++i) three[i] = (x[0][i] + x[1][i]) + x[2][i];
  EXPECT_EQ(differing(canonical<float>(DType::f32, ReduceOp::sum, 5, 3), three), 0);
}

TEST(Rounding, SmallFloatsAreRoundedOnce) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::vector<std::vector<uint16_t>> x;
    for (int rank = 0; rank < 3; ++rank) {
      x.push_back(input_of<uint16_t>(dtype, ReduceOp::sum, 3, rank));
    }
    std::vector<uint16_t> once(kCount);
    std::vector<uint16_t> twice(kCount);
    std::vector<uint16_t> other_order(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      const auto at = [&](int rank) { return to_float(dtype, x[rank][i]); };
      once[i] = from_float(dtype, (at(0) + at(1)) + at(2));
      twice[i] = from_float(dtype, to_float(dtype, from_float(dtype, at(0) + at(1))) + at(2));
      other_order[i] = from_float(dtype, at(0) + (at(1) + at(2)));
    }
    const std::vector<uint16_t> result = canonical<uint16_t>(dtype, ReduceOp::sum, 3, 3);
    EXPECT_EQ(differing(result, once), 0) << name(dtype);
    EXPECT_GT(differing(result, twice), kCount / 50) << name(dtype);
    EXPECT_GT(differing(result, other_order), kCount / 50) << name(dtype);
  }
}

TEST(Rounding, CanonicalResultsAreWithinTheBound) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::premul_sum}) {
      if (!order_matters(dtype, op)) continue;
      for (const int ranks : {1, 2, 3, 8, 33}) {
        SCOPED_TRACE(cat(name(dtype), ' ', name(op), ' ', ranks));
        for (const int combined : {1, ranks}) {
          std::vector<std::byte> result(kCount * size_of(dtype));
          fill_canonical(dtype, op, ranks, combined, 100, kCount, result.data());
          EXPECT_EQ(count_outside_bound(dtype, op, ranks, combined, 100, kCount, result.data()), 0);
        }
      }
    }
  }
}

TEST(Rounding, WrongResultsExceedTheBound) {
  constexpr int kRanks = 4;
  std::vector<float> result = canonical<float>(DType::f32, ReduceOp::sum, kRanks, kRanks);
  const std::vector<float> missing = canonical<float>(DType::f32, ReduceOp::sum, kRanks, 3);
  const auto outside = [&](const std::vector<float>& values) {
    return count_outside_bound(DType::f32, ReduceOp::sum, kRanks, kRanks, 0, kCount, values.data());
  };
  EXPECT_GT(outside(missing), kCount / 2) << "a rank's input is missing";
  result[7] = std::numeric_limits<float>::quiet_NaN();
  result[8] *= 1.001f;
  result[9] = std::numeric_limits<float>::infinity();
  EXPECT_GE(outside(result), 2);
  EXPECT_LE(outside(result), 3);
}

TEST(Rounding, SumsAreFiniteAndOfBothSigns) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::f8e4m3}) {
    std::vector<std::byte> data(kCount * size_of(dtype));
    uint64_t negative = 0;
    for (int rank = 0; rank < 16; ++rank) {
      fill_canonical(dtype, ReduceOp::premul_sum, 16, rank + 1, 0, kCount, data.data());
      EXPECT_EQ(
          count_outside_bound(dtype, ReduceOp::premul_sum, 16, rank + 1, 0, kCount, data.data()), 0)
          << name(dtype);
      for (uint64_t i = 1; i <= kCount; ++i) {  // the sign is the highest bit
        negative += (data[i * size_of(dtype) - 1] & std::byte{0x80}) != std::byte{0};
      }
    }
    EXPECT_GT(negative, 4 * kCount) << name(dtype);
    EXPECT_LT(negative, 12 * kCount) << name(dtype);
  }
}

TEST(Rounding, OrderMattersForSumsOfFloatsOnly) {
  EXPECT_TRUE(order_matters(DType::f32, ReduceOp::sum));
  EXPECT_TRUE(order_matters(DType::bf16, ReduceOp::prod));
  EXPECT_FALSE(order_matters(DType::i32, ReduceOp::sum));
  EXPECT_FALSE(order_matters(DType::f32, ReduceOp::max));
  EXPECT_FALSE(order_matters(DType::f32_i32, ReduceOp::minloc));
  EXPECT_FALSE(order_matters(DType::f32, ReduceOp::user));
}

}  // namespace
}  // namespace tutti::bench
