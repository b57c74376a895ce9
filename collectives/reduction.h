// How a collective combines its inputs: an operator and its parameters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti {

// A user-defined operator: dst[i] = a[i] op b[i] for `count` elements. It must be associative, and
// equal on every rank. dst may be a or b. It is called from whichever thread makes progress, for
// any part of the buffers, and must not throw. 16- and 8-bit floats are passed as they are, not
// converted to float. The pointers may be aligned to only 8 bytes.
struct UserOp {
  using Function =
      std::function<void(void* dst, const void* a, const void* b, uint64_t count, DType dtype)>;
  Function combine;
  // If false, lower ranks are always the left operand, and only canonical algorithms are used.
  bool commutative = true;
  // Number of consecutive buffer elements that form one value of the operator. All counts must be
  // multiples of `width`. The elements of a value are never separated, so the operator may combine
  // values of up to 256 bytes, such as small vectors.
  uint64_t width = 1;
  // Identity of the operator, for instance a C function and its context. Operators with equal
  // identities, `commutative` and `width` count as the same operator, so that calls are compiled
  // once although each creates its own UserOp. If the first pointer is null, the operator has no
  // identity, and equals only itself.
  std::array<const void*, 2> identity = {};

  bool same_as(const UserOp& other) const {
    return identity[0] != nullptr && identity == other.identity &&
           commutative == other.commutative && width == other.width;
  }
};

struct Reduction {
  Reduction() = default;
  Reduction(ReduceOp op) : op(op) {}  // NOLINT: an operator is a reduction

  // Returns the operator that sums factor * input, where each rank has its own factor. The factor
  // is rounded to the type of the computation, and the product is rounded to the element type. For
  // integers the factor must be integral.
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
  std::shared_ptr<const UserOp> function;  // for user-defined operators

  uint64_t width() const { return function != nullptr ? function->width : 1; }
};

}  // namespace tutti
