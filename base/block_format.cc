#include "base/block_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/reduce.h"

namespace tutti {

namespace {

constexpr size_t kMxBlock = values_of(element_of(BlockFormat::mx8));
constexpr size_t kLargeBlock = values_of(element_of(BlockFormat::int8));
constexpr uint8_t kNanScale = 0xff;
constexpr int kScaleBias = 127;  // of E8M0

using Values = std::span<const float>;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// The largest magnitude, as bits: of floats without signs these are ordered as the values are, NaNs
// last.
uint32_t largest_bits(Values values) {
  uint32_t most = 0;
  for (const float value : values) {
    most = std::max(most, std::bit_cast<uint32_t>(value) & 0x7fffffffU);
  }
  return most;
}
constexpr uint32_t kInfinityBits = 0x7f800000U;

// Multiplies by 2^exponent, for exponents that no float has, too: in two steps.
class PowerOfTwo {
 public:
  explicit PowerOfTwo(int exponent)
      : first_(std::ldexp(1.0f, exponent / 2)),
        second_(std::ldexp(1.0f, exponent - exponent / 2)) {}
  float operator()(float value) const { return value * first_ * second_; }

 private:
  float first_;
  float second_;
};

// E8M0 of a block whose largest value has these bits.
uint8_t mx_scale(uint32_t largest, int most_exponent) {
  if (largest >= kInfinityBits) return kNanScale;
  if (largest == 0) return 0;
  const int exponent = std::ilogb(std::bit_cast<float>(largest)) - most_exponent;
  return static_cast<uint8_t>(std::max(exponent, -kScaleBias) + kScaleBias);
}

// The bytes of an MX block's scale, and its values over the scale, which is exact but for subnormal
// results, within +-most; zeros where a value is no number.
std::array<float, kMxBlock> scaled(Values values, int most_exponent, float most, Bytes bytes) {
  const uint8_t scale = mx_scale(largest_bits(values), most_exponent);
  bytes[0] = std::byte{scale};
  std::array<float, kMxBlock> elements{};
  if (scale == kNanScale) return elements;
  const PowerOfTwo inverse(kScaleBias - scale);
  for (size_t i = 0; i < values.size(); ++i) {
    elements[i] = std::clamp(inverse(values[i]), -most, most);
  }
  return elements;
}

void fill_nan(std::span<float> values) {
  std::ranges::fill(values, std::numeric_limits<float>::quiet_NaN());
}

void encode_mx8(Values values, Bytes bytes) {
  constexpr int kMostExponent = 8;
  constexpr float kMost = 448;
  const std::array<float, kMxBlock> elements = scaled(values, kMostExponent, kMost, bytes);
  narrow(&bytes[1], elements.data(), values.size(), DType::f8e4m3);
}

void decode_mx(ConstBytes bytes, std::span<float> values) {
  const auto scale = std::to_integer<uint8_t>(bytes[0]);
  if (scale == kNanScale) return fill_nan(values);
  const PowerOfTwo scaling(scale - kScaleBias);
  for (float& value : values) value = scaling(value);
}

void decode_mx8(ConstBytes bytes, std::span<float> values) {
  widen(values.data(), &bytes[1], values.size(), DType::f8e4m3);
  decode_mx(bytes, values);
}

// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Halfway values go to the even code.
uint8_t e2m1(float value) {
  const float x = std::abs(value);
  const int code = (x > 0.25f) + (x >= 0.75f) + (x > 1.25f) + (x >= 1.75f) + (x > 2.5f) +
                   (x >= 3.5f) + (x > 5.0f);
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}
constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

void encode_mx4(Values values, Bytes bytes) {
  constexpr int kMostExponent = 2;
  constexpr float kMost = 6;
  const std::array<float, kMxBlock> elements = scaled(values, kMostExponent, kMost, bytes);
  for (size_t i = 0; i < values.size(); i += 2) {
    bytes[1 + i / 2] = static_cast<std::byte>(e2m1(elements[i]) | e2m1(elements[i + 1]) << 4);
  }
}

void decode_mx4(ConstBytes bytes, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto two = std::to_integer<unsigned>(bytes[1 + i / 2]);
    values[i] = kE2m1[i % 2 == 0 ? two & 15 : two >> 4];
  }
  decode_mx(bytes, values);
}

void encode_int8(Values values, Bytes bytes) {
  const uint32_t largest = largest_bits(values);
  constexpr float kMost = 127;
  const float scale = largest >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN()
                                               : std::bit_cast<float>(largest) / kMost;
  std::memcpy(bytes.data(), &scale, sizeof(scale));
  const bool is_zero = !(scale > 0);
  // 1.5 * 2^23: adding it rounds to whole numbers, ties to even.
  constexpr float kRound = 12582912.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = is_zero ? 0.0f : std::clamp(values[i] / scale, -kMost, kMost);
    const float whole = x + kRound - kRound;
    bytes[sizeof(scale) + i] = static_cast<std::byte>(static_cast<int8_t>(whole));
  }
}

void decode_int8(ConstBytes bytes, std::span<float> values) {
  float scale = 0;
  std::memcpy(&scale, bytes.data(), sizeof(scale));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * static_cast<float>(static_cast<int8_t>(bytes[sizeof(scale) + i]));
  }
}

constexpr uint32_t kPaddingBits = 0x7fc0b10cU;

size_t without_padding(Values values) {
  size_t count = values.size();
  while (count > 0 && std::bit_cast<uint32_t>(values[count - 1]) == kPaddingBits) --count;
  return count;
}

void encode_sign(Values values, Bytes bytes) {
  const size_t count = without_padding(values);
  const bool is_padded = count < values.size();
  double sum = 0;
  for (const float value : values.first(count)) sum += std::abs(static_cast<double>(value));
  const float mean =
      count == 0 ? 0 : std::abs(static_cast<float>(sum / static_cast<double>(count)));
  const float scale = is_padded ? -mean : mean;
  std::memcpy(bytes.data(), &scale, sizeof(scale));
  std::byte* const signs = bytes.data() + sizeof(scale);
  // Without branches: signs are as good as random.
  for (size_t first = 0; first < values.size(); first += 8) {
    const size_t there = std::min<size_t>(8, values.size() - first);
    unsigned eight = 0;
    for (size_t i = 0; i < there; ++i) eight |= static_cast<unsigned>(values[first + i] < 0) << i;
    signs[first / 8] = static_cast<std::byte>(eight);
  }
  if (is_padded) signs[count / 8] |= static_cast<std::byte>(1U << (count % 8));
}

void decode_sign(ConstBytes bytes, std::span<float> values) {
  uint32_t scale = 0;
  std::memcpy(&scale, bytes.data(), sizeof(scale));
  const std::byte* const signs = bytes.data() + sizeof(scale);
  const auto bit = [signs](size_t i) {
    return std::to_integer<uint32_t>(signs[i / 8]) >> (i % 8) & 1U;
  };
  constexpr uint32_t kSign = 1U << 31;
  size_t count = values.size();
  if ((scale & kSign) != 0) {
    while (count > 0 && bit(count - 1) == 0) --count;
    if (count > 0) --count;  // the 1 behind the last sign
  }
  for (size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>((scale & ~kSign) | bit(i) << 31);
  std::fill(values.begin() + static_cast<ptrdiff_t>(count), values.end(),
            std::bit_cast<float>(kPaddingBits));
}

struct Format {
  std::string_view name;
  size_t block;
  size_t scale_bytes;
  size_t bits;                                 // of a value
  void (*encode)(Values values, Bytes bytes);  // a block
  void (*decode)(ConstBytes bytes, std::span<float> values);
};
constexpr std::array<Format, 4> kFormats = {
    {{"mx8", kMxBlock, 1, 8, encode_mx8, decode_mx8},
     {"mx4", kMxBlock, 1, 4, encode_mx4, decode_mx4},
     {"int8", kLargeBlock, sizeof(float), 8, encode_int8, decode_int8},
     {"sign", kLargeBlock, sizeof(float), 1, encode_sign, decode_sign}}};

const Format& of(BlockFormat format) { return kFormats[static_cast<size_t>(format)]; }

size_t block_bytes(const Format& format, size_t count) {
  return format.scale_bytes + (count * format.bits + 7) / 8;
}

// body(first value, values, first byte, bytes) of each block.
template <typename Body>
void for_each_block(const Format& format, size_t count, const Body& body) {
  size_t at = 0;
  for (size_t first = 0; first < count; first += format.block) {
    const size_t values = std::min(format.block, count - first);
    const size_t bytes = block_bytes(format, values);
    body(first, values, at, bytes);
    at += bytes;
  }
}

}  // namespace

std::string_view name(BlockFormat format) { return of(format).name; }

std::optional<BlockFormat> block_format_named(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  if (found == kFormats.end()) return std::nullopt;
  return static_cast<BlockFormat>(found - kFormats.begin());
}

float padding(BlockFormat format) {
  return format == BlockFormat::sign ? std::bit_cast<float>(kPaddingBits) : 0.0f;
}

size_t block_of(BlockFormat format) { return values_of(element_of(format)); }

size_t bytes_of(BlockFormat format, size_t count) {
  const Format& its = of(format);
  const size_t rest = count % its.block;
  return count / its.block * block_bytes(its, its.block) + (rest > 0 ? block_bytes(its, rest) : 0);
}

void encode(BlockFormat format, Values values, Bytes bytes) {
  const Format& its = of(format);
  for_each_block(its, values.size(), [&](size_t first, size_t count, size_t at, size_t size) {
    its.encode(values.subspan(first, count), bytes.subspan(at, size));
  });
}

void decode(BlockFormat format, ConstBytes bytes, std::span<float> values) {
  const Format& its = of(format);
  for_each_block(its, values.size(), [&](size_t first, size_t count, size_t at, size_t size) {
    its.decode(bytes.subspan(at, size), values.subspan(first, count));
  });
}

}  // namespace tutti
