#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "tests/base/small_float_reference.h"

namespace tutti {
namespace {

using testing::SmallFloatReference;

class HalfTest : public ::testing::TestWithParam<DType> {};

TEST_P(HalfTest, EveryEncodingWidensExactly) {
  const SmallFloatReference reference(GetParam());
  for (int code = 0; code < reference.codes(); ++code) {
    const double expected = reference.decode(code);
    const float value = to_float(GetParam(), static_cast<uint16_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, expected) << code;
      EXPECT_EQ(std::signbit(value), std::signbit(expected)) << code;
    }
  }
}

TEST_P(HalfTest, EveryValueComesBack) {
  const SmallFloatReference reference(GetParam());
  for (int code = 0; code < reference.codes(); ++code) {
    const float value = to_float(GetParam(), static_cast<uint16_t>(code));
    if (std::isnan(value)) {
      EXPECT_EQ(from_float(GetParam(), value), reference.encode(std::nan(""))) << code;
    } else {
      EXPECT_EQ(from_float(GetParam(), value), code);
    }
  }
}

TEST_P(HalfTest, RoundsToNearestEven) {
  const SmallFloatReference reference(GetParam());
  for (float value : reference.hard_cases()) {
    ASSERT_EQ(from_float(GetParam(), value), reference.encode(value)) << value;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const uint32_t bits = random();
    const auto value = __builtin_bit_cast(float, bits);
    ASSERT_EQ(from_float(GetParam(), value), reference.encode(value)) << std::hex << bits;
  }
}

TEST_P(HalfTest, OverflowAndNan) {
  const SmallFloatReference reference(GetParam());
  for (float value : {INFINITY, -INFINITY, std::numeric_limits<float>::max(), NAN, -NAN}) {
    EXPECT_EQ(from_float(GetParam(), value), reference.encode(value)) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfTest,
                         ::testing::Values(DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(HalfValuesTest, KnownEncodings) {
  EXPECT_EQ(from_float(DType::f16, 65504.0F), 0x7bff);
  // Half-way between the largest value and the next step, which is infinity.
  EXPECT_EQ(from_float(DType::f16, 65520.0F), 0x7c00);
  EXPECT_EQ(from_float(DType::bf16, 1.0F), 0x3f80);
  EXPECT_EQ(from_float(DType::f8e4m3, 448.0F), 0x7e);
  EXPECT_EQ(from_float(DType::f8e4m3, 464.0F), 0x7e);
  EXPECT_EQ(from_float(DType::f8e4m3, -465.0F), 0x7f);  // this type has NaN instead of infinity
  EXPECT_EQ(from_float(DType::f8e5m2, 57344.0F), 0x7b);
  EXPECT_EQ(from_float(DType::f8e5m2, -61440.0F), 0xfc);
}

TEST(HalfValuesTest, OtherTypesAreRefused) {
  EXPECT_THROW(to_float(DType::f32, 0), Error);
  EXPECT_THROW(from_float(DType::i8, 0), Error);
}

}  // namespace
}  // namespace tutti
