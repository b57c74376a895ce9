// Element types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// The values are part of the C ABI and of the wire format.
enum class DType : uint8_t {
  i8 = 0,
  i16 = 1,
  i32 = 2,
  i64 = 3,
  u8 = 4,
  u16 = 5,
  u32 = 6,
  u64 = 7,
  f16 = 8,
  bf16 = 9,
  f32 = 10,
  f64 = 11,
  f8e4m3 = 12,  // OCP FP8 E4M3: no infinity, one NaN pattern, largest value 448
  f8e5m2 = 13,  // OCP FP8 E5M2: IEEE-like, largest value 57344
  // A value and an index, for minloc and maxloc: ValueIndex<float, int32_t> and so on.
  f32_i32 = 14,
  f64_i64 = 15,
  i32_i32 = 16,
  i64_i64 = 17,
};

template <typename Value, typename Index>
struct ValueIndex {
  Value value;
  Index index;
  bool operator==(const ValueIndex&) const = default;
};

inline constexpr std::array kAllDTypes = {
    DType::i8,     DType::i16,    DType::i32,     DType::i64,     DType::u8,      DType::u16,
    DType::u32,    DType::u64,    DType::f16,     DType::bf16,    DType::f32,     DType::f64,
    DType::f8e4m3, DType::f8e5m2, DType::f32_i32, DType::f64_i64, DType::i32_i32, DType::i64_i64};

// The following elements are blocks of floats (element_of(BlockFormat)). They are used on the wire
// only, never in a caller's buffer.
inline constexpr size_t kEveryDType = kAllDTypes.size() + 4;
constexpr bool is_block(DType type) { return type > DType::i64_i64; }

// These tables are not local to the functions that use them, because every call would construct a
// local table again.
inline constexpr std::array<uint16_t, kEveryDType> kSizesOfDTypes = {
    1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 8, 16, 8, 16, 33, 17, 260, 36};
inline constexpr std::array<uint16_t, 4> kValuesOfBlocks = {32, 32, 256, 256};
inline constexpr size_t kMostValues = 256;  // maximum number of values per element

constexpr size_t size_of(DType type) { return kSizesOfDTypes[static_cast<size_t>(type)]; }
// Values per element: 1, except for blocks.
constexpr size_t values_of(DType type) {
  return is_block(type) ? kValuesOfBlocks[static_cast<size_t>(type) - kAllDTypes.size()] : 1;
}

constexpr bool is_float(DType type) {
  return (type >= DType::f16 && type <= DType::f8e5m2) || is_block(type);
}
constexpr bool is_pair(DType type) { return type >= DType::f32_i32 && type <= DType::i64_i64; }

// Returns the type in which values are computed: float for 16- and 8-bit floats and for blocks,
// otherwise the type itself.
constexpr DType accumulator_of(DType type) {
  const bool is_narrow = size_of(type) < sizeof(float) || is_block(type);
  return is_float(type) && is_narrow ? DType::f32 : type;
}
// Bytes of one element's accumulators.
constexpr size_t accumulator_bytes(DType type) {
  return size_of(accumulator_of(type)) * values_of(type);
}

// Returns the short name, "f32". parse_dtype also accepts the spellings of other libraries:
// "float32", "float", "bfloat16" ...
std::string_view name(DType type);
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace tutti
