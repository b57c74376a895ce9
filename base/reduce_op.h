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
  minloc = 8,  // pairs only: the smallest value with its index; of equal values the lower index
  maxloc = 9,
  premul_sum = 10,  // the sum of each rank's input times that rank's own factor
  user = 11,        // a function supplied by the caller
};

inline constexpr std::array kAllReduceOps = {
    ReduceOp::sum,    ReduceOp::prod,   ReduceOp::min,        ReduceOp::max,
    ReduceOp::avg,    ReduceOp::band,   ReduceOp::bor,        ReduceOp::bxor,
    ReduceOp::minloc, ReduceOp::maxloc, ReduceOp::premul_sum, ReduceOp::user};

constexpr bool is_bitwise(ReduceOp op) { return op >= ReduceOp::band && op <= ReduceOp::bxor; }
constexpr bool is_location(ReduceOp op) { return op == ReduceOp::minloc || op == ReduceOp::maxloc; }
constexpr bool supports(ReduceOp op, DType type) {
  if (op == ReduceOp::user) return true;
  if (is_pair(type) || is_location(op)) return is_pair(type) && is_location(op);
  return !(is_bitwise(op) && is_float(type));
}

constexpr std::string_view name(ReduceOp op) {
  constexpr std::array<std::string_view, kAllReduceOps.size()> kNames = {
      "sum", "prod", "min",    "max",    "avg",        "band",
      "bor", "bxor", "minloc", "maxloc", "premul_sum", "user"};
  return kNames[static_cast<size_t>(op)];
}

constexpr std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  for (ReduceOp op : kAllReduceOps) {
    if (name(op) == text) return op;
  }
  return std::nullopt;
}

}  // namespace tutti
