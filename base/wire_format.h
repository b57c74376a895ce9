// The format in which a call's f32 elements travel between ranks: unchanged, or in fewer bits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace tutti {

// The values are part of the C ABI.
enum class WireFormat : uint8_t {
  plain = 0,  // unchanged: elements of any type
  bf16 = 1,
  f16 = 2,
  f8e4m3 = 3,
  f8e5m2 = 4,
  mx8 = 5,  // blocks with a shared scale (base/block_format.h)
  mx4 = 6,
  int8 = 7,
  sign = 8,
};

inline constexpr std::array kAllWireFormats = {
    WireFormat::plain, WireFormat::bf16, WireFormat::f16,  WireFormat::f8e4m3, WireFormat::f8e5m2,
    WireFormat::mx8,   WireFormat::mx4,  WireFormat::int8, WireFormat::sign};

// Returns the dtype on the wire. Values are rounded to this dtype, and summed in it
// (base/reduce.h).
constexpr DType element_of(WireFormat format) {
  constexpr std::array kElements = {DType::f32, DType::bf16, DType::f16, DType::f8e4m3,
                                    DType::f8e5m2};
  const auto index = static_cast<size_t>(format);
  // The block formats are in the order of their dtypes.
  return index < kElements.size()
             ? kElements[index]
             : static_cast<DType>(kAllDTypes.size() + index - kElements.size());
}

// Returns the number of elements needed for `count` values; the last element may be partly filled.
constexpr uint64_t elements_of(WireFormat format, uint64_t count) {
  const uint64_t values = values_of(element_of(format));
  return count / values + (count % values > 0 ? 1 : 0);
}
constexpr uint64_t bytes_of(WireFormat format, uint64_t count) {
  return elements_of(format, count) * size_of(element_of(format));
}

// Returns the short name, such as "mx8".
std::string_view name(WireFormat format);
// Returns the format of this name; other names of the dtype ("fp8") are accepted too. Returns
// nullopt if there is no such format.
std::optional<WireFormat> wire_format_named(std::string_view name);

}  // namespace tutti
