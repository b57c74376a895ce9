#include "base/dtype.h"

#include <utility>

namespace tutti {

std::string_view name(DType type) {
  constexpr std::array<std::string_view, kEveryDType> kNames = {
      "i8",         "i16",        "i32",         "i64",        "u8",      "u16",
      "u32",        "u64",        "f16",         "bf16",       "f32",     "f64",
      "f8e4m3",     "f8e5m2",     "f32_i32",     "f64_i64",    "i32_i32", "i64_i64",
      "mx8 blocks", "mx4 blocks", "int8 blocks", "sign blocks"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (DType type : kAllDTypes) {
    if (name(type) == text) return type;
  }
  using Alias = std::pair<std::string_view, DType>;
  constexpr std::array kAliases = {Alias{"int8", DType::i8},
                                   Alias{"int16", DType::i16},
                                   Alias{"int32", DType::i32},
                                   Alias{"int", DType::i32},
                                   Alias{"int64", DType::i64},
                                   Alias{"uint8", DType::u8},
                                   Alias{"uint16", DType::u16},
                                   Alias{"uint32", DType::u32},
                                   Alias{"uint64", DType::u64},
                                   Alias{"float16", DType::f16},
                                   Alias{"half", DType::f16},
                                   Alias{"fp16", DType::f16},
                                   Alias{"bfloat16", DType::bf16},
                                   Alias{"float32", DType::f32},
                                   Alias{"float", DType::f32},
                                   Alias{"fp32", DType::f32},
                                   Alias{"float64", DType::f64},
                                   Alias{"double", DType::f64},
                                   Alias{"fp64", DType::f64},
                                   Alias{"fp8_e4m3", DType::f8e4m3},
                                   Alias{"fp8e4m3", DType::f8e4m3},
                                   Alias{"f8_e4m3", DType::f8e4m3},
                                   Alias{"e4m3", DType::f8e4m3},
                                   Alias{"float8_e4m3", DType::f8e4m3},
                                   Alias{"float8_e4m3fn", DType::f8e4m3},
                                   Alias{"fp8_e5m2", DType::f8e5m2},
                                   Alias{"fp8e5m2", DType::f8e5m2},
                                   Alias{"f8_e5m2", DType::f8e5m2},
                                   Alias{"e5m2", DType::f8e5m2},
                                   Alias{"float8_e5m2", DType::f8e5m2},
                                   Alias{"float_int", DType::f32_i32},
                                   Alias{"2int", DType::i32_i32}};
  for (const auto& [alias, type] : kAliases) {
    if (alias == text) return type;
  }
  return std::nullopt;
}

}  // namespace tutti
