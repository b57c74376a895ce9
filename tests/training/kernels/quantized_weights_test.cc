// Tests quantized weights: their bits against the definitions of the formats, and products against
// products of the dequantized values.
#include "training/kernels/quantized_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "tests/training/support/host_tensor.h"
#include "training/core/thread_pool.h"
#include "training/kernels/gemm.h"

namespace tutti::training::testing {
namespace {

using Values = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr std::array kAll = {WeightFormat::q8_0, WeightFormat::q4_0, WeightFormat::nf4};
constexpr float kLargest = std::numeric_limits<float>::max();

size_t block_of(WeightFormat format) { return format == WeightFormat::nf4 ? 64 : 32; }

Bytes encoded(WeightFormat format, const Values& values) {
  Bytes bytes(static_cast<size_t>(bytes_of_row(format, std::ssize(values))));
  quantize_row(format, values, bytes);
  return bytes;
}
Values decoded(WeightFormat format, const Bytes& bytes, size_t count) {
  Values values(count);
  dequantize_row(format, bytes, values);
  return values;
}

// --- The definitions ---

const std::array<float, 16> kNf4 = {-1.0f,
                                    -0.6961928009986877f,
                                    -0.5250730514526367f,
                                    -0.39491748809814453f,
                                    -0.28444138169288635f,
                                    -0.18477343022823334f,
                                    -0.09105003625154495f,
                                    0.0f,
                                    0.07958029955625534f,
                                    0.16093020141124725f,
                                    0.24611230194568634f,
                                    0.33791524171829224f,
                                    0.44070982933044434f,
                                    0.5626170039176941f,
                                    0.7229568362236023f,
                                    1.0f};

float inverse(float scale) {
  if (scale == 0) return 0;
  return std::clamp(1.0f / scale, -kLargest, kLargest);
}

float through_f16(float value) { return to_float(DType::f16, from_float(DType::f16, value)); }

Values expected_block(WeightFormat format, const Values& block) {
  float most = 0;
  for (const float value : block) {
    if (!std::isfinite(value)) return Values(block.size(), std::nanf(""));
    if (std::abs(value) > std::abs(most)) most = value;
  }
  Values values;
  for (const float x : block) {
    if (format == WeightFormat::q8_0) {
      const float scale = std::abs(most) / 127.0f;
      values.push_back(through_f16(scale) * std::round(x * inverse(scale)));
    } else if (format == WeightFormat::q4_0) {
      const float scale = most / -8.0f;
      const float code = std::min(15.0f, std::trunc(x * inverse(scale) + 8.5f));
      values.push_back(through_f16(scale) * (code - 8));
    } else {
      const float wanted = x * inverse(std::abs(most));
      size_t best = 0;
      for (size_t code = 1; code < kNf4.size(); ++code) {
        // The midpoint of two neighbouring codes, as a float.
        const auto limit =
            static_cast<float>((static_cast<double>(kNf4[code - 1]) + kNf4[code]) / 2);
        if (wanted > limit) best = code;
      }
      values.push_back(std::abs(most) * kNf4[best]);
    }
  }
  return values;
}

void expect_same(WeightFormat format, const Values& values) {
  const Values found = decoded(format, encoded(format, values), values.size());
  for (size_t first = 0; first < values.size(); first += block_of(format)) {
    const size_t end = std::min(values.size(), first + block_of(format));
    Values block(values.begin() + static_cast<std::ptrdiff_t>(first),
                 values.begin() + static_cast<std::ptrdiff_t>(end));
    block.resize(block_of(format));
    const Values wanted = expected_block(format, block);
    for (size_t i = first; i < end; ++i) {
      if (std::isnan(wanted[i - first])) {
        ASSERT_TRUE(std::isnan(found[i])) << name(format) << ' ' << i;
      } else {
        ASSERT_EQ(found[i], wanted[i - first]) << name(format) << ' ' << i << ": " << values[i];
      }
    }
  }
}

// Returns blocks of values of one magnitude and blocks of many magnitudes. They contain ties,
// zeros, subnormals, infinities and NaNs.
Values many_values() {
  constexpr size_t kCount = 1'000'003;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  Values values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const size_t block = i / 64;
    const float x = normal(random);
    switch (block % 8) {
      case 0:
        values[i] = x;
        break;
      case 1:  // ties
        values[i] = i % 32 == 0 ? 127.0f : std::round(x * 20) / 2;
        break;
      case 2:
        values[i] = i % 32 == 0 ? -8.0f : std::clamp(std::round(x * 8) / 2, -7.0f, 8.0f);
        break;
      case 3:
        values[i] = std::ldexp(x, static_cast<int>(random() % 40) - 20);
        break;
      case 4:
        values[i] = std::ldexp(x, static_cast<int>(block / 8 % 160) - 145);
        break;
      case 5:
        values[i] = std::ldexp(std::round(x * 1000), -149);
        break;
      case 6:
        values[i] = i % 2 == 0 ? 0.0f : -0.0f;
        break;
      default:
        values[i] = x;
        if (i % 64 == 37) values[i] = block % 16 == 7 ? -INFINITY : std::nanf("");
    }
  }
  return values;
}

TEST(QuantizedWeights, AMillionValuesMatchTheDefinition) {
  const Values values = many_values();
  for (const WeightFormat format : kAll) expect_same(format, values);
}

TEST(QuantizedWeights, HaveTheseBytes) {
  Values values(32, 0.0f);
  values[0] = 127;
  values[1] = -1.5f;
  values[16] = 2;
  const Bytes q8 = encoded(WeightFormat::q8_0, values);
  ASSERT_EQ(q8.size(), 34u);
  EXPECT_EQ(q8[0], std::byte{0x00});
  EXPECT_EQ(q8[1], std::byte{0x3c}) << "1 in f16";
  EXPECT_EQ(q8[2], std::byte{127});
  EXPECT_EQ(q8[3], std::byte{0xfe}) << "-2: away from zero";
  values[0] = -8;
  const Bytes q4 = encoded(WeightFormat::q4_0, values);
  ASSERT_EQ(q4.size(), 18u);
  EXPECT_EQ(q4[1], std::byte{0x3c});
  EXPECT_EQ(q4[2], std::byte{0xa0}) << "-8 (code 0) and 2 (code 10)";
  EXPECT_EQ(q4[3], std::byte{0x87}) << "-1.5 (7.0, code 7) and 0 (code 8)";
  values.assign(64, 0.0f);
  values[0] = -2;
  values[1] = 2;
  const Bytes nf4 = encoded(WeightFormat::nf4, values);
  ASSERT_EQ(nf4.size(), 36u);
  EXPECT_EQ(nf4[3], std::byte{0x40}) << "2 in f32";
  EXPECT_EQ(nf4[4], std::byte{0x0f});
  EXPECT_EQ(nf4[5], std::byte{0x77});
}

TEST(QuantizedWeights, CountBytes) {
  EXPECT_EQ(bytes_of_row(WeightFormat::q8_0, 64), 68);
  EXPECT_EQ(bytes_of_row(WeightFormat::q4_0, 33), 36);
  EXPECT_EQ(bytes_of_row(WeightFormat::nf4, 65), 72);
  EXPECT_EQ(bytes_of_row(WeightFormat::nf4, 0), 0);
  for (const WeightFormat format : kAll) EXPECT_EQ(weight_format_named(name(format)), format);
  EXPECT_FALSE(weight_format_named("q5_0").has_value());
}

// --- Products ---

struct Weights {
  HostTensor values;  // the dequantized values
  Bytes bytes;
  QuantizedMatrix matrix;
};

Weights weights_of(WeightFormat format, int64_t rows, int64_t cols, DType type) {
  const HostTensor source = random_tensor(DType::f32, rows, cols, 5);
  Weights made{HostTensor(DType::f32, rows, cols), {}, {format, nullptr, rows, cols}};
  made.bytes.resize(static_cast<size_t>(made.matrix.bytes()));
  made.matrix.data = made.bytes.data();
  const auto row_bytes = static_cast<size_t>(bytes_of_row(format, cols));
  for (int64_t row = 0; row < rows; ++row) {
    const std::span bytes =
        std::span(made.bytes).subspan(static_cast<size_t>(row) * row_bytes, row_bytes);
    quantize_row(format, source.view().row_range(row, 1).values<float>(), bytes);
    dequantize_row(format, bytes, made.values.view().row_range(row, 1).values<float>());
  }
  made.values = rounded_to(type, made.values);
  return made;
}

TEST(QuantizedWeights, ProductsUseTheDequantizedValues) {
  for (const WeightFormat format : kAll) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const auto& [rows, inputs, outputs] :
           {std::tuple{1, 64, 3}, std::tuple{5, 100, 700}, std::tuple{300, 1000, 90}}) {
        const Weights w = weights_of(format, outputs, inputs, type);
        const HostTensor x = random_tensor(type, rows, inputs, 1, 1, 4);
        const HostTensor bias = random_tensor(type, 1, outputs, 2);
        for (const bool biased : {false, true}) {
          const ConstTensor added = biased ? ConstTensor(bias) : ConstTensor{};
          HostTensor wanted(type, rows, outputs), y(type, rows, outputs, 2);
          gemm(x, Transpose::no, w.values, Transpose::yes, wanted, GemmMode::overwrite, added);
          multiply_by_weights(x, w.matrix, added, y);
          EXPECT_LT(relative_distance(y, wanted), type == DType::f32 ? 1e-6 : 4e-3);
          EXPECT_TRUE(y.gaps_untouched());
          ThreadPool pool(3);
          const UseThreads use(pool);
          HostTensor same(type, rows, outputs, 2);
          multiply_by_weights(x, w.matrix, added, same);
          EXPECT_TRUE(same_bits(same, y));
        }
      }
    }
  }
}

TEST(QuantizedWeights, LookUps) {
  for (const WeightFormat format : kAll) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Weights w = weights_of(format, 10, 70, type);
      const std::vector<int32_t> indices = {3, 9, 3};
      HostTensor output(type, 3, 70);
      look_up(w.matrix, indices, output);
      for (int64_t row = 0; row < 3; ++row) {
        EXPECT_TRUE(same_bits(output.view().row_range(row, 1),
                              w.values.view().row_range(indices[static_cast<size_t>(row)], 1)));
      }
      EXPECT_THROW(look_up(w.matrix, std::vector<int32_t>{1, 10, 2}, output), Error);
      EXPECT_THROW(look_up(w.matrix, std::vector<int32_t>{1, -1, 2}, output), Error);
    }
  }
}

}  // namespace
}  // namespace tutti::training::testing
