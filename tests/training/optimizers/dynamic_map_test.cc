// Tests the 8-bit data types of bitsandbytes: the values of all codes, and the code of any value.
#include "training/optimizers/dynamic_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {
namespace {

constexpr int64_t kBlock = 256;

// FNV-1a over the bytes of the values, little-endian.
uint64_t hash(const std::array<float, 256>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    for (int byte = 0; byte < 4; ++byte) {
      hash ^= (std::bit_cast<uint32_t>(value) >> (8 * byte)) & 0xff;
      hash *= 0x100000001b3;
    }
  }
  return hash;
}

// The values are those of create_dynamic_map(signed, max_exponent_bits=7, total_bits=8) in
// bitsandbytes 0.45.5 with PyTorch 2.15, on AVX2 and AVX-512.
TEST(DynamicMap, HasTheBitsOfBitsandbytes) {
  const std::array<float, 256>& with_sign = signed_dynamic_map().values;
  EXPECT_EQ(hash(with_sign), 0xd677f22a96665bc4);
  EXPECT_EQ(with_sign[0], -0.99296874F);
  EXPECT_EQ(with_sign[126], -5.5000004e-07F);
  EXPECT_EQ(with_sign[127], 0);
  EXPECT_EQ(with_sign[254], 0.99296874F);
  EXPECT_EQ(with_sign[255], 1);
  const std::array<float, 256>& without = unsigned_dynamic_map().values;
  EXPECT_EQ(hash(without), 0x43811b16730a873e);
  EXPECT_EQ(without[0], 0);
  EXPECT_EQ(without[1], 3.2500003e-07F);
  EXPECT_EQ(without[254], 0.9964844F);
  EXPECT_EQ(without[255], 1);
}

// Performs the search of bitsandbytes' kernels (quantize_2D) step by step, and then corrects the
// sign as its block-wise optimizers do. A block of zeros gets the code of 0.
uint8_t reference_code(const std::array<float, 256>& map, float x) {
  int pivot = 127, upper_pivot = 255, lower_pivot = 0;
  float lower = map[0], upper = map[255], value = map[127];
  for (int i = 64; i > 0; i /= 2) {
    if (x > value) {
      lower_pivot = pivot;
      lower = value;
      pivot += i;
    } else {
      upper_pivot = pivot;
      upper = value;
      pivot -= i;
    }
    value = map[static_cast<size_t>(pivot)];
  }
  int code = pivot;
  if (x > value) {
    if (x > (upper + value) * 0.5F) code = upper_pivot;
  } else if (x < (lower + value) * 0.5F) {
    code = lower_pivot;
  }
  const bool is_signed = map[0] < 0;
  if (is_signed && std::signbit(map[static_cast<size_t>(code)]) != std::signbit(x)) --code;
  return static_cast<uint8_t>(code);
}

struct Quantised {
  std::vector<uint8_t> codes;
  float scale = 0;
  bool operator==(const Quantised&) const = default;
};

Quantised reference(const std::array<float, 256>& map, std::span<const float> values) {
  Quantised made;
  for (const float value : values) made.scale = std::max(made.scale, std::abs(value));
  for (const float value : values) {
    made.codes.push_back(reference_code(map, made.scale == 0 ? 0 : value / made.scale));
  }
  return made;
}

Quantised quantise(const DynamicMap& map, std::span<const float> values,
                   const optimizer_loops::Loops& loops) {
  Quantised made{std::vector<uint8_t>(values.size())};
  made.scale =
      loops.quantize(values.data(), map.cells.data(), made.codes.data(), std::ssize(values));
  return made;
}

std::vector<const optimizer_loops::Loops*> all_loops() {
  std::vector<const optimizer_loops::Loops*> all;
  for (const auto set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
    if (is_available(set)) all.push_back(&optimizer_loops::loops(set));
  }
  return all;
}

// Returns blocks of values of very different magnitudes, blocks of subnormal values, and blocks of
// zeros.
std::vector<float> example(size_t count) {
  std::mt19937 random(3);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t kind = i / kBlock % 8;
    const auto number = static_cast<float>(static_cast<int32_t>(random()));
    const int spread = static_cast<int>(random() % 34);
    if (kind < 6) values[i] = std::ldexp(number, -31 - spread - static_cast<int>(20 * kind));
    if (kind == 6) values[i] = std::ldexp(number, -31 - 126 - spread % 16);
  }
  return values;
}

// Returns the midpoints of all neighbouring values of the map, and the floats next to them. Each
// block contains a 1.
std::vector<float> ties(const std::array<float, 256>& map) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values;
  const auto add = [&](float value) {
    if (values.size() % kBlock == 0) values.push_back(1);
    values.push_back(value);
  };
  for (size_t code = 0; code + 1 < map.size(); ++code) {
    const float middle = (map[code] + map[code + 1]) * 0.5F;
    for (const float value : {middle, map[code]}) {
      add(std::nextafter(value, -kInfinity));
      add(value);
      add(std::nextafter(value, kInfinity));
    }
  }
  return values;
}

void expect_reference(const DynamicMap& map, std::span<const float> values) {
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const auto block = values.subspan(first, std::min<size_t>(kBlock, values.size() - first));
    const Quantised expected = reference(map.values, block);
    for (const optimizer_loops::Loops* loops : all_loops()) {
      ASSERT_EQ(quantise(map, block, *loops), expected) << "block at " << first;
      std::vector<float> back(block.size());
      loops->dequantize(expected.codes.data(), map.values.data(), expected.scale, back.data(),
                        std::ssize(back));
      for (size_t i = 0; i < back.size(); ++i) {
        ASSERT_EQ(back[i], map.values[expected.codes[i]] * expected.scale);
      }
    }
  }
}

TEST(DynamicMap, AMillionValuesHaveTheCodesOfTheDefinition) {
  const std::vector<float> values = example(1'000'000);
  expect_reference(signed_dynamic_map(), values);
  std::vector<float> squares(values.size());
  std::ranges::transform(values, squares.begin(), [](float value) { return std::abs(value); });
  expect_reference(unsigned_dynamic_map(), squares);
}

TEST(DynamicMap, TiesGoToTheEvenCode) {
  expect_reference(signed_dynamic_map(), ties(signed_dynamic_map().values));
  expect_reference(unsigned_dynamic_map(), ties(unsigned_dynamic_map().values));
}

TEST(DynamicMap, NearestCodeIsTheDefinition) {
  for (const DynamicMap* map : {&signed_dynamic_map(), &unsigned_dynamic_map()}) {
    for (const float value : ties(map->values)) {
      ASSERT_EQ(nearest_code(map->values, value), reference_code(map->values, value)) << value;
    }
  }
}

TEST(DynamicMap, ZerosStayZeros) {
  const std::vector<float> zeros(kBlock);
  for (const optimizer_loops::Loops* loops : all_loops()) {
    EXPECT_EQ(quantise(signed_dynamic_map(), zeros, *loops),
              (Quantised{std::vector<uint8_t>(kBlock, 127), 0}));
    EXPECT_EQ(quantise(unsigned_dynamic_map(), zeros, *loops),
              (Quantised{std::vector<uint8_t>(kBlock, 0), 0}));
  }
}

// A non-finite moment must not index outside the table.
TEST(DynamicMap, NonFiniteValuesHaveSomeCode) {
  std::vector<float> values(kBlock, 1);
  values[3] = std::numeric_limits<float>::infinity();
  values[5] = std::numeric_limits<float>::quiet_NaN();
  for (const optimizer_loops::Loops* loops : all_loops()) {
    EXPECT_FALSE(std::isfinite(quantise(signed_dynamic_map(), values, *loops).scale));
  }
}

}  // namespace
}  // namespace tutti::training
