// Accumulators, pairs and factors: what the reduction kernels do beside elements op elements.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/half.h"
#include "base/reduce.h"

namespace tutti {
namespace {

constexpr DType kSmallFloats[] = {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2};
constexpr size_t kCounts[] = {0, 1, 7, 255, 256, 257, 1003};

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

// An array of elements or of accumulators, at an odd address.
class Array {
 public:
  Array(DType type, bool accumulators, size_t count)
      : type_(type),
        width_(accumulators ? sizeof(float) : size_of(type)),
        bytes_(count * width_ + 2) {}
  void* data() { return bytes_.data() + 1; }
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

TEST_P(AccumulatorTest, EveryMixtureOfFormats) {
  for (int formats = 0; formats < 8; ++formats) {
    const Formats f{(formats & 1) != 0, (formats & 2) != 0, (formats & 4) != 0};
    for (const size_t count : kCounts) {
      Array a(type(), f.a, count);
      Array b(type(), f.b, count);
      Array dst(type(), f.dst, count);
      std::mt19937 random(static_cast<uint32_t>(count));
      std::normal_distribution<float> values(0, 3);
      for (size_t i = 0; i < count; ++i) {
        a.set(i, values(random));
        b.set(i, values(random));
      }
      reduce_kernel(type(), ReduceOp::sum, set())(dst.data(), a.data(), b.data(), count, f);
      for (size_t i = 0; i < count; ++i) {
        const float sum = a.get(i) + b.get(i);
        const float expected = f.dst ? sum : to_float(type(), from_float(type(), sum));
        ASSERT_TRUE(same_bits(dst.get(i), expected)) << formats << ' ' << count << ' ' << i;
      }
    }
  }
}

// Small parts are lost when each sum is rounded, and are there when only the last one is.
TEST_P(AccumulatorTest, KeepWhatElementsLose) {
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

TEST_P(AccumulatorTest, ScalingRoundsOnce) {
  for (const size_t count : kCounts) {
    Array values(type(), false, count);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 2);
    for (size_t i = 0; i < count; ++i) values.set(i, normal(random));
    Array scaled = values;
    scale(scaled.data(), scaled.data(), count, type(), 1.0 / 3, set());
    for (size_t i = 0; i < count; ++i) {
      const float product = values.get(i) * static_cast<float>(1.0 / 3);
      ASSERT_TRUE(same_bits(scaled.get(i), to_float(type(), from_float(type(), product)))) << i;
    }
  }
}

TEST(Scale, WholeNumbersWrapAround) {
  std::vector<int8_t> values = {1, -2, 100};
  scale(values.data(), values.data(), values.size(), DType::i8, 3);
  EXPECT_EQ(values, (std::vector<int8_t>{3, -6, static_cast<int8_t>(300)}));
  std::vector<double> doubles = {0.1, -3};
  scale(doubles.data(), doubles.data(), doubles.size(), DType::f64, 0.1);
  EXPECT_EQ(doubles, (std::vector<double>{0.1 * 0.1, -3 * 0.1}));
}

TEST(Scale, RefusesFactorsThatTheTypeDoesNotHold) {
  check_factor(DType::bf16, 0.3);
  check_factor(DType::i8, -128);
  check_factor(DType::u64, 1e15);
  EXPECT_THROW(check_factor(DType::i32, 0.5), Error);
  EXPECT_THROW(check_factor(DType::i8, 128), Error);
  EXPECT_THROW(check_factor(DType::u8, -1), Error);
  EXPECT_THROW(check_factor(DType::i64, std::nan("")), Error);
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

TEST(PairsOfFloats, NaNWins) {
  using Pair = ValueIndex<float, int32_t>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::minloc, ReduceOp::maxloc}) {
    EXPECT_EQ(combined(op, Pair{nan, 9}, Pair{1, 3}).index, 9);
    EXPECT_EQ(combined(op, Pair{1, 3}, Pair{nan, 9}).index, 9);
    EXPECT_EQ(combined(op, Pair{nan, 9}, Pair{nan, 4}).index, 4);
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
