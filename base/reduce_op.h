// Reduction operators.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace tutti {

// The values are part of the C ABI and of the wire format.
enum class ReduceOp : uint8_t {
  sum = 0,
  prod = 1,
  min = 2,
  max = 3,
  avg = 4,   // the sum divided by the number of ranks; integers truncate towards zero
  band = 5,  // bitwise, integers only
  bor = 6,
  bxor = 7,
};

inline constexpr std::array kAllReduceOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                             ReduceOp::max, ReduceOp::avg,  ReduceOp::band,
                                             ReduceOp::bor, ReduceOp::bxor};

constexpr bool is_bitwise(ReduceOp op) { return op >= ReduceOp::band; }
constexpr bool supports(ReduceOp op, DType type) { return !(is_bitwise(op) && is_float(type)); }

constexpr std::string_view name(ReduceOp op) {
  constexpr std::array<std::string_view, kAllReduceOps.size()> kNames = {
      "sum", "prod", "min", "max", "avg", "band", "bor", "bxor"};
  return kNames[static_cast<size_t>(op)];
}

constexpr std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  for (ReduceOp op : kAllReduceOps) {
    if (name(op) == text) return op;
  }
  return std::nullopt;
}

}  // namespace tutti
