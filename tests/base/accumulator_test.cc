// Tests the reduction kernels for accumulators, for pairs of a value and an index, and for scaling
// by a factor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/half.h"
#include "base/reduce.h"

namespace tutti {
namespace {

constexpr DType kSmallFloats[] = {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};
constexpr size_t kCounts[] = {0, 1, 7, 8, 33, 255, 1003};

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

// An array of elements or of accumulators, at an odd address.
class Array {
 public:
  Array(DType type, bool accumulators, size_t count)
      : type_(type),
        width_(accumulators ? sizeof(float) : size_of(type)),
        bytes_(count * width_ + 2, kGuard) {}
  void* data() { return bytes_.data() + 1; }
  bool ends_intact() const { return bytes_.front() == kGuard && bytes_.back() == kGuard; }
  float get(size_t i) {
    if (width_ == sizeof(float)) {
      float value = 0;
      std::memcpy(&value, at(i), sizeof(value));
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, at(i), width_);
    return to_float(type_, bits);
  }
  void set(size_t i, float value) {
    if (width_ == sizeof(float)) {
      std::memcpy(at(i), &value, sizeof(value));
    } else {
      const uint16_t bits = from_float(type_, value);
      std::memcpy(at(i), &bits, width_);
    }
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  unsigned char* at(size_t i) { return bytes_.data() + 1 + i * width_; }
  DType type_;
  size_t width_;
  std::vector<unsigned char> bytes_;
};

class AccumulatorTest : public ::testing::TestWithParam<std::tuple<InstructionSet, DType>> {
 protected:
  void SetUp() override {
    if (!is_available(set())) GTEST_SKIP() << "this processor has no " << name(set());
  }
  static InstructionSet set() { return std::get<0>(GetParam()); }
  static DType type() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, AccumulatorTest,
                         ::testing::Combine(::testing::ValuesIn(kAllInstructionSets),
                                            ::testing::ValuesIn(kSmallFloats)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  std::string(name(std::get<1>(info.param)));
                         });

float combined(ReduceOp op, float a, float b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::isnan(a) || (!std::isnan(b) && a < b) ? a : b;
    case ReduceOp::max:
      return std::isnan(a) || (!std::isnan(b) && a > b) ? a : b;
    default:
      return a + b;
  }
}

// Fills the array with ordinary and difficult values: zeros, infinities, NaN, subnormals of both
// formats, values that overflow, and values between two elements.
void fill(DType type, Array& array, size_t count, uint32_t seed) {
  using Limits = std::numeric_limits<float>;
  const float least = to_float(type, 1);
  const float hard[] = {0.0F,
                        -0.0F,
                        Limits::infinity(),
                        -Limits::infinity(),
                        Limits::quiet_NaN(),
                        Limits::denorm_min(),
                        -Limits::max(),
                        least,
                        -least * 1.5F,
                        least / 2,
                        448,
                        -57344,
                        65504,
                        1 + Limits::epsilon()};
  std::mt19937 random(seed);
  std::normal_distribution<float> ordinary(0, 3);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t draw = random();
    array.set(i, draw % 2 == 0 ? hard[(draw >> 8) % std::size(hard)] : ordinary(random));
  }
}

// dst is a separate array, or the same as an operand in the same format.
TEST_P(AccumulatorTest, EveryMixtureOfFormatsMatchesTheReference) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                            ReduceOp::avg, ReduceOp::premul_sum}) {
    for (int mixture = 0; mixture < 24; ++mixture) {
      const Formats f{(mixture & 1) != 0, (mixture & 2) != 0, (mixture & 4) != 0};
      const int place = mixture / 8;
      if ((place == 1 && f.a != f.dst) || (place == 2 && f.b != f.dst)) continue;
      for (const size_t count : kCounts) {
        Array a(type(), f.a, count);
        Array b(type(), f.b, count);
        fill(type(), a, count, 1);
        fill(type(), b, count, 2);
        Array left = a;
        Array right = b;
        Array apart(type(), f.dst, count);
        Array& dst = place == 0 ? apart : (place == 1 ? a : b);
        reduce_kernel(type(), op, set())(dst.data(), a.data(), b.data(), count, f);
        for (size_t i = 0; i < count; ++i) {
          const float exact = combined(op, left.get(i), right.get(i));
          const float expected = f.dst ? exact : to_float(type(), from_float(type(), exact));
          ASSERT_TRUE(same_bits(dst.get(i), expected))
              << name(op) << " of " << left.get(i) << " and " << right.get(i) << " gave "
              << dst.get(i) << " at " << i << " of " << count << ", mixture " << mixture;
        }
        EXPECT_TRUE(dst.ends_intact());
      }
    }
  }
}

// Small terms are lost if each sum is rounded, but not if only the last sum is rounded.
TEST_P(AccumulatorTest, AccumulatorsKeepSmallTerms) {
  const float large = type() == DType::f8e4m3 || type() == DType::f8e5m2 ? 16 : 2048;
  const float small = large / 4096;
  Array sum(type(), true, 1);
  Array element(type(), false, 1);
  Array rounded(type(), false, 1);
  sum.set(0, large);
  rounded.set(0, large);
  element.set(0, small);
  for (int i = 0; i < 4096; ++i) {
    reduce_kernel(type(), ReduceOp::sum, set())(sum.data(), sum.data(), element.data(), 1,
                                                {true, true, false});
    reduce_kernel(type(), ReduceOp::sum, set())(rounded.data(), rounded.data(), element.data(), 1,
                                                {});
  }
  EXPECT_EQ(sum.get(0), 2 * large);
  EXPECT_EQ(rounded.get(0), large);
}

TEST_P(AccumulatorTest, EveryEncodingSurvivesWideningAndNarrowing) {
  const size_t codes = size_t{1} << (8 * size_of(type()));
  std::vector<unsigned char> elements(codes * size_of(type()));
  for (size_t i = 0; i < codes; ++i)
    std::memcpy(&elements[i * size_of(type())], &i, size_of(type()));
  std::vector<float> wide(codes);
  widen(wide.data(), elements.data(), codes, type(), set());
  std::vector<unsigned char> back(elements.size());
  narrow(back.data(), wide.data(), codes, type(), set());
  for (size_t i = 0; i < codes; ++i) {
    const float expected = to_float(type(), static_cast<uint16_t>(i));
    ASSERT_TRUE(same_bits(wide[i], expected)) << i;
    uint16_t code = 0;
    std::memcpy(&code, &back[i * size_of(type())], size_of(type()));
    ASSERT_EQ(code, from_float(type(), expected)) << i;
  }
}

TEST_P(AccumulatorTest, NarrowingRoundsLikeOneValueAtATime) {
  for (const size_t count : kCounts) {
    Array wide(type(), true, count);
    fill(type(), wide, count, 4);
    Array rounded(type(), false, count);
    narrow(rounded.data(), wide.data(), count, type(), set());
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(same_bits(rounded.get(i), to_float(type(), from_float(type(), wide.get(i)))))
          << wide.get(i);
    }
    Array back(type(), true, count);
    widen(back.data(), rounded.data(), count, type(), set());
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(same_bits(back.get(i), rounded.get(i))) << i;
    EXPECT_TRUE(rounded.ends_intact() && back.ends_intact());
  }
}

TEST_P(AccumulatorTest, ScalingRoundsOnce) {
  for (const double factor : {1.0 / 3, -2.0, 0.0, 1e300}) {
    for (const size_t count : kCounts) {
      Array values(type(), false, count);
      fill(type(), values, count, 3);
      Array apart(type(), false, count);
      scale(apart.data(), values.data(), count, type(), factor, set());
      Array on_source = values;
      scale(on_source.data(), on_source.data(), count, type(), factor, set());
      for (size_t i = 0; i < count; ++i) {
        const float product = values.get(i) * static_cast<float>(factor);
        const float expected = to_float(type(), from_float(type(), product));
        ASSERT_TRUE(same_bits(apart.get(i), expected)) << values.get(i) << " * " << factor;
        ASSERT_TRUE(same_bits(on_source.get(i), expected)) << values.get(i) << " * " << factor;
      }
      EXPECT_TRUE(apart.ends_intact() && on_source.ends_intact());
    }
  }
}

template <typename T>
class WideScaleTest : public ::testing::Test {};
using WideTypes = ::testing::Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                                   uint64_t, float, double>;
TYPED_TEST_SUITE(WideScaleTest, WideTypes);

// Integers must wrap around, and floats must keep their own precision, with every instruction set
// and at unaligned addresses.
TYPED_TEST(WideScaleTest, MultipliesInTheType) {
  using T = TypeParam;
  constexpr bool kInteger = std::is_integral_v<T>;
  constexpr size_t kCount = 131;
  const double factor = kInteger ? (std::is_signed_v<T> ? -103 : 203) : 0.1;
  std::vector<T> values(kCount);
  std::mt19937_64 random(5);
  for (T& value : values) {
    value = kInteger ? static_cast<T>(random())
                     : static_cast<T>(1.0 / static_cast<double>(random() % 99));
  }
  for (const InstructionSet set : kAllInstructionSets) {
    if (!is_available(set)) continue;
    std::vector<unsigned char> bytes(kCount * sizeof(T) + 1);
    std::memcpy(bytes.data() + 1, values.data(), kCount * sizeof(T));
    scale(bytes.data() + 1, bytes.data() + 1, kCount, DTypeOf<T>::value, factor, set);
    for (size_t i = 0; i < kCount; ++i) {
      T expected;
      if constexpr (kInteger) {
        expected = static_cast<T>(static_cast<__int128>(values[i]) * static_cast<__int128>(factor));
      } else {
        expected = values[i] * static_cast<T>(factor);
      }
      T actual;
      std::memcpy(&actual, bytes.data() + 1 + i * sizeof(T), sizeof(T));
      ASSERT_EQ(actual, expected) << +values[i] << ", " << name(set);
    }
  }
}

TEST(Scale, RefusesFactorsThatTheTypeCannotRepresent) {
  check_factor(DType::bf16, 0.3);
  check_factor(DType::i8, -128);
  check_factor(DType::u64, 1e15);
  EXPECT_THROW(check_factor(DType::i32, 0.5), Error);
  EXPECT_THROW(check_factor(DType::i8, 128), Error);
  EXPECT_THROW(check_factor(DType::u8, -1), Error);
  EXPECT_THROW(check_factor(DType::u64, 0x1p64), Error);
  EXPECT_THROW(check_factor(DType::i64, std::nan("")), Error);
  EXPECT_THROW(check_factor(DType::f32_i32, 1), Error);
}

// ---- pairs

template <typename Pair>
class PairTest : public ::testing::Test {};
using Pairs = ::testing::Types<ValueIndex<float, int32_t>, ValueIndex<double, int64_t>,
                               ValueIndex<int32_t, int32_t>, ValueIndex<int64_t, int64_t>>;
TYPED_TEST_SUITE(PairTest, Pairs);

template <typename Pair>
Pair combined(ReduceOp op, Pair a, Pair b) {
  Pair result{};
  reduce_kernel(DTypeOf<Pair>::value, op)(&result, &a, &b, 1, {});
  return result;
}

TYPED_TEST(PairTest, TakeTheExtremeAndItsPlace) {
  using Pair = TypeParam;
  EXPECT_EQ(combined(ReduceOp::minloc, Pair{1, 9}, Pair{2, 3}), (Pair{1, 9}));
  EXPECT_EQ(combined(ReduceOp::minloc, Pair{2, 3}, Pair{1, 9}), (Pair{1, 9}));
  EXPECT_EQ(combined(ReduceOp::maxloc, Pair{1, 9}, Pair{2, 3}), (Pair{2, 3}));
  EXPECT_EQ(combined(ReduceOp::maxloc, Pair{-2, 3}, Pair{-1, 9}), (Pair{-1, 9}));
}

TYPED_TEST(PairTest, OfEqualValuesTheLowerIndex) {
  using Pair = TypeParam;
  for (const ReduceOp op : {ReduceOp::minloc, ReduceOp::maxloc}) {
    EXPECT_EQ(combined(op, Pair{5, 9}, Pair{5, 3}), (Pair{5, 3}));
    EXPECT_EQ(combined(op, Pair{5, 3}, Pair{5, 9}), (Pair{5, 3}));
  }
}

// The reference, written after the definition, case by case.
template <typename Pair>
Pair chosen(ReduceOp op, const Pair& a, const Pair& b) {
  const Pair& lower = a.index <= b.index ? a : b;
  if (a.value != a.value) return b.value != b.value ? lower : a;  // NOLINT: NaN
  if (b.value != b.value) return b;                               // NOLINT: NaN
  if (a.value == b.value) return lower;
  return (a.value < b.value) == (op == ReduceOp::minloc) ? a : b;
}

// Returns pairs with few distinct values, so that many are equal. Floats include NaN, infinities
// and -0.
template <typename Pair>
std::vector<Pair> random_pairs(size_t count, uint32_t seed) {
  using Limits = std::numeric_limits<decltype(Pair::value)>;
  std::mt19937 random(seed);
  std::vector<Pair> pairs(count);
  for (Pair& pair : pairs) {
    const uint32_t draw = random() % 8;
    pair.value = static_cast<decltype(Pair::value)>(static_cast<int>(random() % 5) - 2);
    if (draw == 0) pair.value = Limits::has_quiet_NaN ? Limits::quiet_NaN() : Limits::max();
    if (draw == 1) pair.value = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    if (draw == 2) pair.value = -pair.value * 0;  // -0 if the values are floats
    pair.index = static_cast<decltype(Pair::index)>(random() % 64) - 32;
  }
  return pairs;
}

TYPED_TEST(PairTest, EverySetAgreesWithTheDefinition) {
  using Pair = TypeParam;
  for (const InstructionSet set : kAllInstructionSets) {
    if (!is_available(set)) continue;
    for (const ReduceOp op : {ReduceOp::minloc, ReduceOp::maxloc}) {
      for (const size_t count : kCounts) {
        const auto a = random_pairs<Pair>(count, 1);
        const auto b = random_pairs<Pair>(count, 2);
        const size_t bytes = count * sizeof(Pair);
        for (const bool on_a : {false, true}) {
          std::vector<unsigned char> left(bytes + 1);
          std::vector<unsigned char> right(bytes + 1);
          std::vector<unsigned char> apart(bytes + 1);
          if (count > 0) std::memcpy(left.data() + 1, a.data(), bytes);
          if (count > 0) std::memcpy(right.data() + 1, b.data(), bytes);
          unsigned char* dst = (on_a ? left : apart).data() + 1;
          const auto kernel = reduce_kernel(DTypeOf<Pair>::value, op, set);
          kernel(dst, left.data() + 1, right.data() + 1, count, {});
          for (size_t i = 0; i < count; ++i) {
            const Pair expected = chosen(op, a[i], b[i]);
            ASSERT_EQ(std::memcmp(dst + i * sizeof(Pair), &expected, sizeof(Pair)), 0)
                << name(op) << ' ' << name(set) << " of " << a[i].value << '@' << a[i].index
                << " and " << b[i].value << '@' << b[i].index;
          }
        }
      }
    }
  }
}

TEST(Operators, FitTheirTypes) {
  for (const DType type : kAllDTypes) {
    EXPECT_TRUE(supports(ReduceOp::user, type));
    EXPECT_EQ(supports(ReduceOp::minloc, type), is_pair(type));
    EXPECT_EQ(supports(ReduceOp::sum, type), !is_pair(type));
    EXPECT_EQ(supports(ReduceOp::bxor, type), !is_pair(type) && !is_float(type));
  }
  EXPECT_THROW(reduce_kernel(DType::f32_i32, ReduceOp::sum), Error);
  EXPECT_THROW(reduce_kernel(DType::f32, ReduceOp::maxloc), Error);
  EXPECT_THROW(reduce_kernel(DType::f32, ReduceOp::user), Error);
}

}  // namespace
}  // namespace tutti
