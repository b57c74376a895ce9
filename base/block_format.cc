#include "base/block_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/kernels/kernels.h"

namespace tutti {

namespace {

using Values = std::span<const float>;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

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
  size_t scale_bytes;
  size_t bits;  // of a value
};
constexpr std::array<Format, 4> kFormats = {
    {{"mx8", 1, 8}, {"mx4", 1, 4}, {"int8", sizeof(float), 8}, {"sign", sizeof(float), 1}}};

const Format& of(BlockFormat format) { return kFormats[static_cast<size_t>(format)]; }

size_t block_bytes(const Format& format, size_t count) {
  return format.scale_bytes + (count * format.bits + 7) / 8;
}

constexpr size_t kLongestBlock = values_of(element_of(BlockFormat::int8));
constexpr size_t kMostBytes = size_of(element_of(BlockFormat::int8));

// Blocks that have their whole length.
void encode_whole(BlockFormat format, const float* values, std::byte* bytes, size_t blocks) {
  if (format != BlockFormat::sign) {
    return kernels::selected_kernels().encode[static_cast<size_t>(format)](bytes, values, blocks);
  }
  const DType element = element_of(format);
  for (size_t block = 0; block < blocks; ++block) {
    encode_sign({values + block * values_of(element), values_of(element)},
                {bytes + block * size_of(element), size_of(element)});
  }
}

void decode_whole(BlockFormat format, const std::byte* bytes, float* values, size_t blocks) {
  if (format != BlockFormat::sign) {
    return kernels::selected_kernels().decode[static_cast<size_t>(format)](values, bytes, blocks);
  }
  const DType element = element_of(format);
  for (size_t block = 0; block < blocks; ++block) {
    decode_sign({bytes + block * size_of(element), size_of(element)},
                {values + block * values_of(element), values_of(element)});
  }
}

// A shorter block is the beginning of one that zeros follow.
void encode_short(BlockFormat format, Values values, Bytes bytes) {
  if (format == BlockFormat::sign) return encode_sign(values, bytes);
  std::array<float, kLongestBlock> whole{};
  std::array<std::byte, kMostBytes> encoded;
  std::ranges::copy(values, whole.begin());
  encode_whole(format, whole.data(), encoded.data(), 1);
  std::copy_n(encoded.begin(), bytes.size(), bytes.begin());
}

void decode_short(BlockFormat format, ConstBytes bytes, std::span<float> values) {
  if (format == BlockFormat::sign) return decode_sign(bytes, values);
  std::array<std::byte, kMostBytes> encoded{};
  std::array<float, kLongestBlock> whole;
  std::ranges::copy(bytes, encoded.begin());
  decode_whole(format, encoded.data(), whole.data(), 1);
  std::copy_n(whole.begin(), values.size(), values.begin());
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
  const size_t block = block_of(format);
  const size_t rest = count % block;
  return count / block * size_of(element_of(format)) +
         (rest > 0 ? block_bytes(of(format), rest) : 0);
}

void encode(BlockFormat format, Values values, Bytes bytes) {
  const size_t blocks = values.size() / block_of(format);
  encode_whole(format, values.data(), bytes.data(), blocks);
  const size_t whole = blocks * block_of(format);
  if (whole == values.size()) return;
  encode_short(format, values.subspan(whole), bytes.subspan(blocks * size_of(element_of(format))));
}

void decode(BlockFormat format, ConstBytes bytes, std::span<float> values) {
  const size_t blocks = values.size() / block_of(format);
  decode_whole(format, bytes.data(), values.data(), blocks);
  const size_t whole = blocks * block_of(format);
  if (whole == values.size()) return;
  decode_short(format, bytes.subspan(blocks * size_of(element_of(format))), values.subspan(whole));
}

}  // namespace tutti
