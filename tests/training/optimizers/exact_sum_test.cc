#include "training/optimizers/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "training/core/layout.h"

namespace tutti::training {
namespace {

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

// Returns the sum of squares, added in pieces of `piece` elements.
double squares_in_pieces(std::span<const float> values, size_t piece) {
  ExactSum sum;
  for (size_t first = 0; first < values.size(); first += piece) {
    add_squares(values.subspan(first, std::min(piece, values.size() - first)), sum);
  }
  return sum.value();
}

TEST(ExactSumTest, SquaresDoNotDependOnTheDivisionInDeterministicMode) {
  settings().set("TUTTI_DETERMINISTIC", "1");
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> values(1000);
    for (float& value : values)
      value = std::ldexp(mantissa(random), -static_cast<int>(random() % 60));
    const double whole = squares_in_pieces(values, values.size());
    for (const size_t piece : {1, 7, 32, 125, 250}) {
      EXPECT_EQ(squares_in_pieces(values, piece), whole) << piece;
    }
  }
  settings().set("TUTTI_DETERMINISTIC", "0");
}

TEST(ExactSumTest, IsZeroAtTheStart) { EXPECT_EQ(ExactSum().value(), 0.0); }

TEST(ExactSumTest, LosesNothingAtAnyMagnitude) {
  EXPECT_EQ(sum_of({0x1p300, 0x1p-300, -0x1p300}), 0x1p-300);
  EXPECT_EQ(sum_of({-0x1p300, 3, 0x1p300}), 3);
  EXPECT_EQ(sum_of({0x1.fffffffffffffp319}), 0x1.fffffffffffffp319);
  EXPECT_EQ(sum_of({-0x1.fffffffffffffp-300}), -0x1.fffffffffffffp-300);
  EXPECT_EQ(sum_of({0.1, 0.2, -0.1, -0.2, 0.0, -0.0}), 0);
}

TEST(ExactSumTest, RoundsOnceToNearestEven) {
  EXPECT_EQ(sum_of({0x1p53, 1}), 0x1p53);
  EXPECT_EQ(sum_of({0x1p53, 1, 0x1p-300}), 0x1p53 + 2);
  EXPECT_EQ(sum_of({0x1p53, 1, -0x1p-300}), 0x1p53);
  EXPECT_EQ(sum_of({0x1p53, 3}), 0x1p53 + 4);
  EXPECT_EQ(sum_of({-0x1p53, -1}), -0x1p53);
  EXPECT_EQ(sum_of({-0x1p53, -1, -0x1p-300}), -0x1p53 - 2);
  EXPECT_EQ(sum_of({0x1p64, -1}), 0x1p64);
  EXPECT_EQ(sum_of({0x1p200, 0x1p147, 0x1p-200}), 0x1.0000000000001p200);
}

TEST(ExactSumTest, CutsTinyTermsOffEachByItself) {
  EXPECT_EQ(sum_of({0x1p-352}), 0x1p-352);
  EXPECT_EQ(sum_of({0x1.8p-352, -0x1.8p-352, 0x1.8p-352}), 0x1p-352);
  EXPECT_EQ(sum_of({0x1p-353, 0x1p-353}), 0);
  EXPECT_EQ(sum_of({std::numeric_limits<double>::denorm_min()}), 0);
}

// The reference is __float128, which is exact for sums that span 112 bits.
TEST(ExactSumTest, EqualsAWideFloatInEveryOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> terms(200);
    __float128 expected = 0;
    for (double& term : terms) {
      const double mantissa = static_cast<double>(static_cast<int64_t>(random()) >> 24);
      term = std::ldexp(mantissa, static_cast<int>(random() % 60) - 90);
      expected += term;
    }
    for (int order = 0; order < 5; ++order) {
      std::shuffle(terms.begin(), terms.end(), random);
      ASSERT_EQ(sum_of(terms), static_cast<double>(expected)) << "round " << round;
    }
  }
}

TEST(ExactSumTest, DoesNotDependOnTheGrouping) {
  std::mt19937_64 random(2);
  std::vector<double> terms(1000);
  for (double& term : terms) {
    term = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 500) - 280);
    if (random() % 2 == 0) term = -term;
  }
  const double expected = sum_of(terms);
  for (const size_t parts : {2, 3, 7}) {
    std::vector<ExactSum> sums(parts);
    for (const double term : terms) sums[random() % parts].add(term);
    ExactSum merged;
    for (const ExactSum& sum : sums) merged.add(sum);
    EXPECT_EQ(merged.value(), expected);
    // Adds the sums limb by limb, as an all-reduce does.
    std::vector<int64_t> total(ExactSum::kLimbs);
    for (ExactSum& sum : sums) {
      for (size_t i = 0; i < total.size(); ++i) total[i] += sum.limbs()[i];
    }
    std::copy(total.begin(), total.end(), sums[0].limbs().begin());
    EXPECT_EQ(sums[0].value(), expected);
  }
}

TEST(ExactSumTest, CarriesBeforeALimbOverflows) {
  ExactSum sum;
  sum.add(-0x1.fffffffffffffp52);
  for (int i = 0; i < 60; ++i) {
    const ExactSum same = sum;
    sum.add(same);
  }
  EXPECT_EQ(sum.value(), -0x1.fffffffffffffp112);
  for (int i = 0; i < 60; ++i) {
    for (int64_t& limb : sum.limbs()) limb *= 2;  // as if two ranks had equal sums
  }
  EXPECT_EQ(sum.value(), -0x1.fffffffffffffp172);
}

TEST(ExactSumTest, NonFiniteTermsSpoilTheSumForGood) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::nan(""), 0x1p320, -0x1p1000}) {
    ExactSum sum;
    sum.add(bad);
    sum.add(1);
    EXPECT_TRUE(std::isnan(sum.value())) << bad;
    ExactSum merged;
    merged.add(sum);
    EXPECT_TRUE(std::isnan(merged.value())) << bad;
    ExactSum reduced;
    for (size_t i = 0; i < ExactSum::kLimbs; ++i) reduced.limbs()[i] += sum.limbs()[i];
    EXPECT_TRUE(std::isnan(reduced.value())) << bad;
  }
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
}

std::vector<float> numbers(size_t count) {
  std::mt19937 random(3);
  std::vector<float> floats(count);
  for (float& number : floats) {
    number = std::ldexp(static_cast<float>(random() >> 8), static_cast<int>(random() % 200) - 140);
  }
  return floats;
}

TEST(AddSquaresTest, AddsUpSquares) {
  for (const size_t count : {0, 1, 31, 32, 33, 1023, 1024, 1025, 5000}) {
    const std::vector<float> threes(count, -3.0f);
    ExactSum sum;
    add_squares(threes, sum);
    EXPECT_EQ(sum.value(), 9.0 * static_cast<double>(count));
  }
}

TEST(AddSquaresTest, IsExactForTheSmallestAndLargestFloats) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  const float largest = std::numeric_limits<float>::max();
  ExactSum sum;
  add_squares(std::vector<float>(32, smallest), sum);
  EXPECT_EQ(sum.value(), 0x1p-293);
  add_squares(std::vector<float>(64, largest), sum);
  EXPECT_EQ(sum.value(), 64 * (static_cast<double>(largest) * largest));
}

TEST(AddSquaresTest, HasTheSameBitsForEveryCutAtABlock) {
  const std::vector<float> all = numbers(3001);
  ExactSum whole;
  add_squares(all, whole);
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    ExactSum parts;
    for (std::span<const float> rest = all; !rest.empty();) {
      const size_t count = std::min<size_t>(rest.size(), kAlignment * (1 + random() % 50));
      ExactSum part;
      add_squares(rest.first(count), part);
      parts.add(part);
      rest = rest.subspan(count);
    }
    ASSERT_EQ(parts.value(), whole.value());
  }
}

TEST(AddSquaresTest, ReadsSmallTypes) {
  const std::vector<float> floats = {1, -2, 0.5, 3};
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    std::vector<float> memory = floats;
    if (type != DType::f32) narrow(memory.data(), floats.data(), floats.size(), type);
    ExactSum sum;
    add_squares(tensor_at(std::as_const(memory).data(), type, 1, 4), sum);
    EXPECT_EQ(sum.value(), 14.25);
  }
  const double number = 1;
  ExactSum sum;
  EXPECT_THROW(add_squares(tensor_at(&number, DType::f64, 1, 1), sum), Error);
}

TEST(AddSquaresTest, DetectsNonFiniteValues) {
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    std::vector<float> floats(100, 1.0f);
    floats[97] = bad;
    ExactSum sum;
    add_squares(floats, sum);
    EXPECT_TRUE(std::isnan(sum.value()));
  }
}

}  // namespace
}  // namespace tutti::training
