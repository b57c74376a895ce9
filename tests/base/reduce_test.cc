#include "base/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "tests/base/small_float_reference.h"

namespace tutti {
namespace {

using testing::SmallFloatReference;
using Bytes = std::vector<unsigned char>;

template <typename T>
T element(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void put(void* data, size_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

const SmallFloatReference& small_float(DType type) {
  static std::map<DType, SmallFloatReference> references;
  return references.try_emplace(type, type).first->second;
}

template <typename T>
T combine_floats(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::isnan(a) ? a : (std::isnan(b) ? b : (a < b ? a : b));
    case ReduceOp::max:
      return std::isnan(a) ? a : (std::isnan(b) ? b : (a > b ? a : b));
    default:
      return a + b;
  }
}

// Results fit in 128 bits, except the product of two 64-bit numbers, which may wrap around.
template <typename T>
T combine_integers(ReduceOp op, T a, T b) {
  using Wide = unsigned __int128;
  switch (op) {
    case ReduceOp::prod:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case ReduceOp::min:
      return b < a ? b : a;
    case ReduceOp::max:
      return a < b ? b : a;
    case ReduceOp::band:
      return static_cast<T>(a & b);
    case ReduceOp::bor:
      return static_cast<T>(a | b);
    case ReduceOp::bxor:
      return static_cast<T>(a ^ b);
    default:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <typename T>
T combine(DType type, ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return combine_floats(op, a, b);
  } else if (is_float(type)) {
    const SmallFloatReference& reference = small_float(type);
    const auto left = static_cast<float>(reference.decode(a));
    const auto right = static_cast<float>(reference.decode(b));
    return static_cast<T>(reference.encode(combine_floats(op, left, right)));
  } else {
    return combine_integers(op, a, b);
  }
}

template <typename T>
T divided(DType type, T value, int ranks) {
  if constexpr (std::is_floating_point_v<T>) {
    return value / static_cast<T>(ranks);
  } else if (is_float(type)) {
    const SmallFloatReference& reference = small_float(type);
    const auto wide = static_cast<float>(reference.decode(value));
    return static_cast<T>(reference.encode(wide / static_cast<float>(ranks)));
  } else {
    return static_cast<T>(static_cast<__int128>(value) / ranks);
  }
}

template <typename T>
T mean_of_floats(T a, T b, int ranks) {
  const T sum = a + b;
  const bool overflows = std::isinf(sum) && std::isfinite(a) && std::isfinite(b);
  if (!overflows) return sum / static_cast<T>(ranks);
  return static_cast<T>(2 * (static_cast<long double>(a / 2 + b / 2) / ranks));
}

template <typename T>
T mean_of(DType type, T a, T b, int ranks) {
  if constexpr (std::is_floating_point_v<T>) {
    return mean_of_floats(a, b, ranks);
  } else if (is_float(type)) {
    const SmallFloatReference& reference = small_float(type);
    const auto left = static_cast<float>(reference.decode(a));
    const auto right = static_cast<float>(reference.decode(b));
    return static_cast<T>(reference.encode(mean_of_floats(left, right, ranks)));
  } else {
    return divided<T>(type, combine_integers(ReduceOp::sum, a, b), ranks);
  }
}

// Returns true if the bits are equal, or if both are NaN, because the payload of a NaN may be that
// of either operand.
template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  using Representation = std::array<unsigned char, sizeof(T)>;
  return std::bit_cast<Representation>(a) == std::bit_cast<Representation>(b);
}

template <typename Check>
void with_type(DType type, Check check) {
  switch (type) {
    case DType::i8:
      return check(int8_t{});
    case DType::i16:
      return check(int16_t{});
    case DType::i32:
      return check(int32_t{});
    case DType::i64:
      return check(int64_t{});
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return check(uint8_t{});
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return check(uint16_t{});
    case DType::u32:
      return check(uint32_t{});
    case DType::u64:
      return check(uint64_t{});
    case DType::f32:
      return check(float{});
    case DType::f64:
      return check(double{});
    default:
      FAIL() << name(type) << " is no number";
  }
}

std::vector<DType> numbers() {
  std::vector<DType> types;
  for (const DType type : kAllDTypes) {
    if (!is_pair(type)) types.push_back(type);
  }
  return types;
}

// Fills with random bits. For small types, they include infinities, NaNs and subnormals; for wide
// types, these values are added.
template <typename T>
void fill(void* data, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      using Limits = std::numeric_limits<T>;
      const T special[] = {T(0),
                           -T(0),
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::quiet_NaN(),
                           Limits::denorm_min(),
                           Limits::max(),
                           Limits::min()};
      const uint64_t draw = random();
      const T ordinary = static_cast<T>(static_cast<int64_t>(random())) / T(1 << 20) / T(1 << 20);
      put(data, i, draw % 4 == 0 ? special[(draw >> 8) % std::size(special)] : ordinary);
    } else {
      put(data, i, static_cast<T>(random()));
    }
  }
}

using Case = std::tuple<InstructionSet, DType>;

class ReduceTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!is_available(set())) GTEST_SKIP() << "this processor has no " << name(set());
  }
  static InstructionSet set() { return std::get<0>(GetParam()); }
  static DType type() { return std::get<1>(GetParam()); }
};

constexpr size_t kCounts[] = {0, 1, 2, 7, 15, 33, 255, 256, 257, 1003};
constexpr unsigned char kGuard = 0xa5;

enum class Place { apart, on_a, on_b };

template <typename T>
void check_reduce(DType type, ReduceOp op, InstructionSet set, size_t count, size_t offset,
                  Place place) {
  const size_t bytes = count * sizeof(T);
  Bytes a(bytes + offset + 64, kGuard);
  Bytes b(bytes + offset + 64, kGuard);
  Bytes apart(bytes + offset + 64, kGuard);
  fill<T>(a.data() + offset, count, 1);
  fill<T>(b.data() + offset, count, 2);
  const Bytes old_a = a;
  const Bytes old_b = b;
  Bytes& result = place == Place::on_a ? a : (place == Place::on_b ? b : apart);
  reduce_kernel(type, op, set)(result.data() + offset, a.data() + offset, b.data() + offset, count,
                               {});
  for (size_t i = 0; i < count; ++i) {
    const T left = element<T>(old_a.data() + offset, i);
    const T right = element<T>(old_b.data() + offset, i);
    ASSERT_TRUE(same(element<T>(result.data() + offset, i), combine<T>(type, op, left, right)))
        << name(op) << " of " << +left << " and " << +right << " gave "
        << +element<T>(result.data() + offset, i) << " at " << i << " of " << count;
  }
  for (size_t i = 0; i < offset; ++i) ASSERT_EQ(result[i], kGuard) << "written before the buffer";
  for (size_t i = offset + bytes; i < result.size(); ++i) {
    ASSERT_EQ(result[i], kGuard) << "written after the buffer";
  }
}

TEST_P(ReduceTest, MatchesTheReference) {
  for (ReduceOp op : kAllReduceOps) {
    if (!supports(op, type()) || op == ReduceOp::user) continue;
    for (size_t count : kCounts) {
      for (size_t offset : {0, 1}) {
        for (Place place : {Place::apart, Place::on_a, Place::on_b}) {
          with_type(type(), [&](auto zero) {
            check_reduce<decltype(zero)>(type(), op, set(), count, offset, place);
          });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Tests all pairs of 8-bit values, and all 16-bit values, each with 16 others.
TEST_P(ReduceTest, EveryEncodingOfSmallTypesMatchesTheReference) {
  if (size_of(type()) > 2) return;
  with_type(type(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 2) {
      const size_t codes = size_t{1} << (8 * sizeof(T));
      std::vector<T> a(codes);
      std::vector<T> b(codes);
      std::vector<T> result(codes);
      for (size_t i = 0; i < codes; ++i) a[i] = static_cast<T>(i);
      for (size_t turn = 0; turn < (sizeof(T) == 1 ? 256 : 16); ++turn) {
        for (size_t i = 0; i < codes; ++i) {
          b[i] = static_cast<T>(sizeof(T) == 1 ? turn : (i * 40503) ^ (turn * 4369));
        }
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
          reduce_kernel(type(), op, set())(result.data(), a.data(), b.data(), codes, {});
          for (size_t i = 0; i < codes; ++i) {
            ASSERT_EQ(result[i], combine<T>(type(), op, a[i], b[i]))
                << name(op) << " of " << +a[i] << " and " << +b[i];
          }
        }
      }
    }
  });
}

TEST_P(ReduceTest, MeansOfSumsMatchTheReference) {
  for (int ranks : {1, 2, 3, 7, 300}) {
    for (size_t count : kCounts) {
      with_type(type(), [&](auto zero) {
        using T = decltype(zero);
        Bytes data(count * sizeof(T) + 2, kGuard);
        fill<T>(data.data() + 1, count, 3);
        const Bytes old = data;
        mean(data.data() + 1, data.data() + 1, nullptr, count, type(), ranks, {}, set());
        for (size_t i = 0; i < count; ++i) {
          const T value = element<T>(old.data() + 1, i);
          ASSERT_TRUE(same(element<T>(data.data() + 1, i), divided<T>(type(), value, ranks)))
              << +value << " / " << ranks;
        }
        ASSERT_EQ(data.back(), kGuard);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ReduceTest, MeansOfTwoMatchTheReference) {
  for (int ranks : {2, 3, 7, 300}) {
    for (size_t count : kCounts) {
      with_type(type(), [&](auto zero) {
        using T = decltype(zero);
        Bytes a(count * sizeof(T) + 2, kGuard), b(count * sizeof(T) + 1, kGuard);
        fill<T>(a.data() + 1, count, 3);
        fill<T>(b.data() + 1, count, 4);
        const Bytes old = a;
        mean(a.data() + 1, a.data() + 1, b.data() + 1, count, type(), ranks, {}, set());
        for (size_t i = 0; i < count; ++i) {
          const T x = element<T>(old.data() + 1, i), y = element<T>(b.data() + 1, i);
          ASSERT_TRUE(same(element<T>(a.data() + 1, i), mean_of<T>(type(), x, y, ranks)))
              << "(" << +x << " + " << +y << ") / " << ranks;
        }
        ASSERT_EQ(a.back(), kGuard);
      });
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceTest,
                         ::testing::Combine(::testing::ValuesIn(kAllInstructionSets),
                                            ::testing::ValuesIn(numbers())),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  std::string(name(std::get<1>(info.param)));
                         });

TEST(ReduceKernelTest, BitwiseOperationsNeedIntegers) {
  try {
    reduce_kernel(DType::bf16, ReduceOp::bxor);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("bxor is not defined for bf16"), std::string::npos);
  }
}

TEST(ReduceKernelTest, TheSelectedSetIsAvailable) {
  EXPECT_TRUE(is_available(selected_instruction_set()));
  EXPECT_TRUE(is_available(InstructionSet::baseline));
}

TEST(ReduceKernelTest, AverageOfIntegersTruncatesTowardsZero) {
  int32_t values[] = {-7, 7, -1};
  mean(values, values, nullptr, 3, DType::i32, 2);
  EXPECT_EQ(values[0], -3);
  EXPECT_EQ(values[1], 3);
  EXPECT_EQ(values[2], 0);
}

}  // namespace
}  // namespace tutti
