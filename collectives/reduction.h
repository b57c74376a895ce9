// What a collective combines inputs with: an operator, and for some what it needs beside.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti {

// An operator of the caller's: dst[i] = a[i] op b[i] for `count` elements. It must be associative,
// and the same on every rank. dst may be a or b. Called from whichever thread makes progress, for
// any part of the buffers; must not throw. 16- and 8-bit floats come as they are, not as floats.
// What it is given may be aligned to 8 bytes only.
struct UserOp {
  using Function =
      std::function<void(void* dst, const void* a, const void* b, uint64_t count, DType dtype)>;
  Function combine;
  // Otherwise lower ranks are always on the left, and only canonical algorithms are taken.
  bool commutative = true;
  // So many elements of the buffers, which have a multiple of them, are one value to the operator:
  // they stay together, however the buffers are cut. So values of any size can be combined.
  uint64_t width = 1;
  // Tell operators apart, where not null: those with the same two are the same operator, so that
  // calls with one that is made anew for each are compiled once (a C function and its context).
  // Otherwise an operator is the same as itself only.
  std::array<const void*, 2> identity = {};

  bool same_as(const UserOp& other) const {
    return identity[0] != nullptr && identity == other.identity &&
           commutative == other.commutative && width == other.width;
  }
};

struct Reduction {
  Reduction() = default;
  Reduction(ReduceOp op) : op(op) {}  // NOLINT: an operator is a reduction

  // The sum of factor * input; each rank has a factor of its own. The factor is rounded to
  // what the type is computed in, the product to the element type. For integers the factor is a
  // whole number.
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
  double factor = 1;                       // premul_sum
  std::shared_ptr<const UserOp> function;  // user

  uint64_t width() const { return function != nullptr ? function->width : 1; }
};

}  // namespace tutti
