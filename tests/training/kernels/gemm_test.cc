// Tests matrix products against plain loops in double.
#include "training/kernels/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/training/support/host_tensor.h"
#include "training/core/thread_pool.h"

namespace tutti::training::testing {
namespace {

struct Problem {
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::f32, out = DType::f32;
  bool transpose_a = false, transpose_b = false;
  enum class Mode { overwrite, bias, accumulate } mode = Mode::overwrite;
  int64_t gap = 0;
};

std::string describe(const Problem& p) {
  return cat(p.m, " x ", p.k, " x ", p.n, " in ", name(p.in), " to ", name(p.out),
             p.transpose_a ? " a^T" : "", p.transpose_b ? " b^T" : "",
             p.mode == Problem::Mode::bias ? " + bias" : "",
             p.mode == Problem::Mode::accumulate ? " accumulated" : "", " gap ", p.gap);
}

// The relative error of one rounding to the type.
double unit_of(DType type) {
  switch (type) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

// Inputs are in [-1, 1), so that no partial sum exceeds k + 1.
double tolerance_of(const Problem& p) {
  const double sums = unit_of(p.in == DType::f64 ? DType::f64 : DType::f32);
  const auto length = static_cast<double>(p.k + 2);
  return 2 * sums * length * length + 2 * unit_of(p.out) * std::sqrt(length) * 4;
}

void check(const Problem& p) {
  SCOPED_TRACE(describe(p));
  const HostTensor a =
      random_tensor(p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, 1, 1, p.gap);
  const HostTensor b =
      random_tensor(p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, 2, 1, 2 * p.gap);
  const HostTensor bias = random_tensor(p.in, 1, p.n, 3);
  const HostTensor c = random_tensor(p.out, p.m, p.n, 4, 1, p.gap);
  const std::vector<double> before = doubles(c);
  const bool biased = p.mode == Problem::Mode::bias;
  const bool accumulated = p.mode == Problem::Mode::accumulate;
  gemm(a, Transpose{p.transpose_a}, b, Transpose{p.transpose_b}, c,
       accumulated ? GemmMode::accumulate : GemmMode::overwrite,
       biased ? ConstTensor(bias) : ConstTensor{});
  const std::vector<double> left = doubles(a), right = doubles(b), result = doubles(c);
  const auto at = [](const std::vector<double>& values, int64_t index) {
    return values[static_cast<size_t>(index)];
  };
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t col = 0; col < p.n; ++col) {
      double sum = biased ? get(bias, 0, col) : 0;
      if (accumulated) sum = at(before, row * p.n + col);
      for (int64_t i = 0; i < p.k; ++i) {
        sum += at(left, p.transpose_a ? i * p.m + row : row * p.k + i) *
               at(right, p.transpose_b ? col * p.k + i : i * p.n + col);
      }
      ASSERT_NEAR(at(result, row * p.n + col), sum, tolerance_of(p)) << row << ", " << col;
    }
  }
  EXPECT_TRUE(c.gaps_untouched());
}

void check_all(int64_t m, int64_t n, int64_t k) {
  using Mode = Problem::Mode;
  const std::vector<std::pair<DType, DType>> types = {
      {DType::f64, DType::f64},  {DType::f32, DType::f32}, {DType::bf16, DType::bf16},
      {DType::bf16, DType::f32}, {DType::f16, DType::f16}, {DType::f16, DType::f32}};
  for (const auto& [in, out] : types) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const Mode mode : {Mode::overwrite, Mode::bias, Mode::accumulate}) {
          for (const int64_t gap : {0, 3}) check({m, n, k, in, out, ta, tb, mode, gap});
        }
      }
    }
  }
}

TEST(GemmTest, SmallAndOddShapes) {
  check_all(5, 3, 7);
  check_all(33, 17, 9);
}

TEST(GemmTest, OneRowOneColumnOneTerm) {
  check_all(1, 5, 4);
  check_all(5, 1, 4);
  check_all(5, 4, 1);
  check_all(1, 1, 1);
}

TEST(GemmTest, LargerThanBlocks) { check_all(70, 65, 130); }

// The matrices are divided into tiles, but their sizes are not multiples of the tiles' sizes.
TEST(GemmTest, Tiles) {
  ThreadPool pool(2);
  const UseThreads use(pool);
  check({.m = 300, .n = 411, .k = 90});
  check({.m = 300, .n = 411, .k = 90, .transpose_a = true, .mode = Problem::Mode::bias, .gap = 3});
  check({.m = 2, .n = 8300, .k = 550, .transpose_b = true, .mode = Problem::Mode::bias, .gap = 3});
  check({.m = 2100, .n = 5, .k = 900, .in = DType::bf16, .mode = Problem::Mode::accumulate});
  check({.m = 300, .n = 411, .k = 90, .in = DType::f16, .out = DType::f16, .gap = 3});
}

// By AVX2, these are divided into large tiles, or into parts of k, so that oneDNN packs operands.
TEST(GemmTest, LargeTiles) {
  using Mode = Problem::Mode;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const UseThreads use(pool);
    for (const Mode mode : {Mode::overwrite, Mode::bias, Mode::accumulate}) {
      check({.m = 330, .n = 1170, .k = 1100, .transpose_a = true, .mode = mode, .gap = 5});
      check({.m = 1170, .n = 330, .k = 517, .transpose_a = true, .mode = mode});
    }
    check({.m = 1040, .n = 1600, .k = 60, .transpose_a = true});
    check({.m = 2050, .n = 768, .k = 50});
  }
}

// The bits depend on the shape, not on the threads.
TEST(GemmTest, ThreadsChangeNoBit) {
  const HostTensor a = random_tensor(DType::f32, 1100, 330, 1);
  const HostTensor b = random_tensor(DType::f32, 1100, 1170, 2);
  const auto product = [&](int threads) {
    ThreadPool pool(threads);
    const UseThreads use(pool);
    HostTensor c(DType::f32, 330, 1170);
    gemm(a.view(), Transpose::yes, b.view(), Transpose::no, c.view());
    return doubles(c);
  };
  EXPECT_EQ(product(1), product(3));
}

// Operands whose rows are a page apart are copied, a part of the terms at a time.
TEST(GemmTest, RowsAPageApart) {
  using Mode = Problem::Mode;
  for (const Mode mode : {Mode::overwrite, Mode::bias, Mode::accumulate}) {
    check({.m = 1024, .n = 70, .k = 90, .transpose_a = true, .mode = mode});
    check({.m = 70, .n = 1024, .k = 90, .mode = mode});
    check({.m = 512, .n = 1024, .k = 90, .transpose_a = true, .mode = mode});
    check({.m = 120, .n = 1024, .k = 1100, .mode = mode});
  }
  check({.m = 1000, .n = 70, .k = 300, .transpose_a = true, .gap = 24});
}

TEST(GemmTest, NoRowsNoColumns) {
  check_all(0, 5, 4);
  check_all(5, 0, 4);
}

// A sum of no terms is 0, the bias, or the previous value.
TEST(GemmTest, NoTerms) { check_all(5, 4, 0); }

TEST(GemmTest, PartsOfMatrices) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const HostTensor a = random_tensor(type, 9, 8, 1);
    const HostTensor b = random_tensor(type, 7, 9, 2);
    HostTensor c = random_tensor(type, 6, 6, 3);
    const std::vector<double> before = doubles(c);
    const Tensor part = c.view().row_range(1, 4).col_range(2, 3);
    const ConstTensor left = ConstTensor(a).row_range(2, 4).col_range(1, 5);
    const ConstTensor right = ConstTensor(b).row_range(1, 5).col_range(4, 3);
    gemm(left, Transpose::no, right, Transpose::no, part);
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t col = 0; col < 6; ++col) {
        double expected = before[static_cast<size_t>(row * 6 + col)];
        if (row >= 1 && row < 5 && col >= 2 && col < 5) {
          expected = 0;
          for (int64_t i = 0; i < 5; ++i) {
            expected += get(left, row - 1, i) * get(right, i, col - 2);
          }
        }
        EXPECT_NEAR(get(c, row, col), expected, 8 * unit_of(type)) << name(type);
      }
    }
  }
}

// Sums of ones: a bf16 sum would stop at 256, an f16 sum at 2048.
TEST(GemmTest, SumsOf16BitTypesAreWide) {
  for (const DType type : {DType::bf16, DType::f16}) {
    const HostTensor ones(type, 1, 4096), c(DType::f32, 1, 1);
    assign(ones, std::vector<double>(4096, 1));
    gemm(ones, Transpose::no, ones, Transpose::yes, c);
    EXPECT_EQ(get(c, 0, 0), 4096) << name(type);
    assign(ones, std::vector<double>(4096, 0.25));
    gemm(ones, Transpose::no, ones, Transpose::yes, c, GemmMode::accumulate);
    EXPECT_EQ(get(c, 0, 0), 4096 + 256) << name(type);
  }
}

TEST(GemmTest, EveryThreadGetsTheSameBits) {
  const HostTensor a = random_tensor(DType::f32, 37, 129, 1);
  const HostTensor b = random_tensor(DType::f32, 129, 65, 2);
  std::vector<HostTensor> results;
  for (int i = 0; i < 4; ++i) results.emplace_back(DType::f32, 37, 65);
  std::vector<std::thread> threads;
  for (HostTensor& result : results) {
    threads.emplace_back([&] { gemm(a, Transpose::no, b, Transpose::no, result); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const HostTensor& result : results) EXPECT_TRUE(same_bits(result, results.front()));
}

// Returns the product of `p` with gaps between the rows of a, b and c.
HostTensor product_with_gaps(const Problem& p, const std::array<int64_t, 3>& gaps) {
  const HostTensor a =
      random_tensor(p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, 1, 1, gaps[0]);
  const HostTensor b =
      random_tensor(p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, 2, 1, gaps[1]);
  HostTensor c = random_tensor(p.out, p.m, p.n, 3, 1, gaps[2]);
  const HostTensor bias = random_tensor(p.in, 1, p.n, 4);
  gemm(a, Transpose{p.transpose_a}, b, Transpose{p.transpose_b}, c,
       p.mode == Problem::Mode::accumulate ? GemmMode::accumulate : GemmMode::overwrite,
       p.mode == Problem::Mode::bias ? ConstTensor(bias) : ConstTensor{}, BitsOf::shape);
  return c;
}

TEST(GemmTest, StridesDoNotChangeTheBits) {
  using Mode = Problem::Mode;
  constexpr int64_t kSizes[][3] = {
      {8, 4, 32},     {8, 32, 4},  {256, 1, 768},   {1, 40, 300},     {37, 65, 513},
      {128, 96, 768}, {3, 1, 700}, {300, 256, 400}, {1024, 70, 1200}, {70, 1024, 1200}};
  for (const auto [m, n, k] : kSizes) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      for (const auto& [ta, tb] : {std::pair(false, true), {false, false}, {true, false}}) {
        for (const Mode mode : {Mode::overwrite, Mode::bias, Mode::accumulate}) {
          const Problem p{.m = m,
                          .n = n,
                          .k = k,
                          .in = type,
                          .out = type,
                          .transpose_a = ta,
                          .transpose_b = tb,
                          .mode = mode};
          SCOPED_TRACE(describe(p));
          const HostTensor close = product_with_gaps(p, {0, 0, 0});
          for (const auto& gaps :
               {std::array<int64_t, 3>{k, 0, 0}, {0, n, 0}, {0, 0, n}, {7 * m, 7 * k, 7 * n}}) {
            EXPECT_TRUE(same_bits(product_with_gaps(p, gaps), close));
          }
        }
      }
    }
  }
}

TEST(GemmTest, RefusesWhatDoesNotFit) {
  const HostTensor a(DType::f32, 2, 3), b(DType::f32, 3, 5), c(DType::f32, 2, 5);
  const HostTensor wide(DType::f64, 2, 5), bias(DType::f32, 1, 5), short_bias(DType::f32, 1, 4);
  constexpr auto kNo = Transpose::no, kYes = Transpose::yes;
  EXPECT_NO_THROW(gemm(a, kNo, b, kNo, c, GemmMode::overwrite, bias));
  EXPECT_THROW(gemm(a, kYes, b, kNo, c), Error);
  EXPECT_THROW(gemm(a, kNo, b, kYes, c), Error);
  EXPECT_THROW(gemm(a, kNo, b, kNo, wide), Error);
  EXPECT_THROW(gemm(a, kNo, b, kNo, c, GemmMode::overwrite, short_bias), Error);
  EXPECT_THROW(gemm(a, kNo, b, kNo, c, GemmMode::accumulate, bias), Error);
}

}  // namespace
}  // namespace tutti::training::testing
