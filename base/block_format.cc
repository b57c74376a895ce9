#include "base/block_format.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/kernels/kernels.h"
#include "base/reduce.h"

namespace tutti {

namespace {

using Values = std::span<const float>;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

struct Format {
  std::string_view name;
  size_t scale_bytes;
  size_t bits;  // number of bits per value
};
constexpr std::array<Format, 4> kFormats = {
    {{"mx8", 1, 8}, {"mx4", 1, 4}, {"int8", sizeof(float), 8}, {"sign", sizeof(float), 1}}};

const Format& of(BlockFormat format) { return kFormats[static_cast<size_t>(format)]; }

size_t block_bytes(const Format& format, size_t count) {
  return format.scale_bytes + (count * format.bits + 7) / 8;
}

constexpr size_t kMostBytes = size_of(element_of(BlockFormat::int8));

// Encodes a block with fewer values: encodes a padded block, removes the padding marker, and keeps
// the beginning.
void encode_short(BlockFormat format, Values values, Bytes bytes) {
  std::array<float, kMostValues> whole;
  std::array<std::byte, kMostBytes> encoded;
  whole.fill(padding(format));
  std::ranges::copy(values, whole.begin());
  narrow(encoded.data(), whole.data(), 1, element_of(format));
  if (format == BlockFormat::sign) {
    encoded[sizeof(float) - 1] &= std::byte{0x7f};
    encoded[sizeof(float) + values.size() / 8] &= ~(std::byte{1} << values.size() % 8);
  }
  std::copy_n(encoded.begin(), bytes.size(), bytes.begin());
}

void decode_short(BlockFormat format, ConstBytes bytes, std::span<float> values) {
  std::array<std::byte, kMostBytes> encoded{};
  std::array<float, kMostValues> whole;
  std::ranges::copy(bytes, encoded.begin());
  widen(whole.data(), encoded.data(), 1, element_of(format));
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
  return format == BlockFormat::sign ? std::bit_cast<float>(kernels::kPaddingBits) : 0.0f;
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
  narrow(bytes.data(), values.data(), blocks, element_of(format));
  const size_t whole = blocks * block_of(format);
  if (whole == values.size()) return;
  encode_short(format, values.subspan(whole), bytes.subspan(blocks * size_of(element_of(format))));
}

void decode(BlockFormat format, ConstBytes bytes, std::span<float> values) {
  const size_t blocks = values.size() / block_of(format);
  widen(values.data(), bytes.data(), blocks, element_of(format));
  const size_t whole = blocks * block_of(format);
  if (whole == values.size()) return;
  decode_short(format, bytes.subspan(blocks * size_of(element_of(format))), values.subspan(whole));
}

}  // namespace tutti
