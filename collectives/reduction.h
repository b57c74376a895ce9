// The operator of a reduction, with its parameters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti {

// An operator of the caller: computes dst[i] = a[i] op b[i] for `count` elements; dst may be a or
// b. It must be associative, the same on every rank, and must not throw. It is called from
// whichever thread makes progress, for any part of the buffers, whose alignment may be 8 bytes
// only. 16- and 8-bit floats are passed in their own format, not as floats.
struct UserOp {
  using Function =
      std::function<void(void* dst, const void* a, const void* b, uint64_t count, DType dtype)>;
  Function combine;
  // False: lower ranks are always the left operand, and only canonical algorithms are used.
  bool commutative = true;
  // Number of elements that form one value of the operator; it must divide the buffers' counts.
  // Buffers are never split within a value, so values of any size can be combined.
  uint64_t width = 1;
  // Identifies the operator, if the first is not null: operators with equal pairs are the same, so
  // that calls with an operator constructed for each (a C function and its context) are compiled
  // once. Otherwise an operator equals only itself.
  std::array<const void*, 2> identity = {};

  bool same_as(const UserOp& other) const {
    return identity[0] != nullptr && identity == other.identity &&
           commutative == other.commutative && width == other.width;
  }
};

struct Reduction {
  Reduction() = default;
  Reduction(ReduceOp op) : op(op) {}  // NOLINT: an operator is a reduction

  // The sum of factor * input, where each rank has its own factor. The factor is rounded to the
  // accumulator type, the product to the element type. For integers the factor must be a whole
  // number.
  static Reduction premul_sum(double factor) {
    Reduction reduction(ReduceOp::premul_sum);
    reduction.factor = factor;
    return reduction;
  }
  static Reduction user(std::shared_ptr<const UserOp> function) {
    Reduction reduction(ReduceOp::user);
    reduction.function = std::move(function);
    return reduction;
  }

  ReduceOp op = ReduceOp::sum;
  double factor = 1;                       // for premul_sum
  std::shared_ptr<const UserOp> function;  // for user

  uint64_t width() const { return function != nullptr ? function->width : 1; }
};

}  // namespace tutti
