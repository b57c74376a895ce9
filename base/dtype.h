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
};

inline constexpr std::array kAllDTypes = {
    DType::i8,  DType::i16, DType::i32,  DType::i64, DType::u8,  DType::u16,    DType::u32,
    DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64, DType::f8e4m3, DType::f8e5m2};

constexpr size_t size_of(DType type) {
  constexpr std::array<uint8_t, kAllDTypes.size()> kSizes = {1, 2, 4, 8, 1, 2, 4,
                                                             8, 2, 2, 4, 8, 1, 1};
  return kSizes[static_cast<size_t>(type)];
}

constexpr bool is_float(DType type) { return type >= DType::f16; }

// "f32". parse_dtype also takes the spellings of other libraries: "float32", "float", "bfloat16"
// ...
std::string_view name(DType type);
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace tutti
