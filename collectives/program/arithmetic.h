// What a call does to the numbers besides combining them, as part of its program's steps: so an
// executor adds nothing of its own, and what is proved is what runs. No step is added for it, and
// nothing passes through memory once more, as long as the step that reads an input, or completes a
// result, can do it.
#pragma once

#include <cstdint>

#include "base/reduce_op.h"
#include "collectives/program/program.h"

namespace tutti {

enum class Arithmetic : uint8_t {
  none,
  means,   // results are divided by the number of ranks that they combine (ReduceOp::avg)
  scaled,  // inputs are multiplied by this rank's factor (ReduceOp::premul_sum)
};

// What an operator adds to a program.
constexpr Arithmetic arithmetic_of(ReduceOp op) {
  if (op == ReduceOp::avg) return Arithmetic::means;
  return op == ReduceOp::premul_sum ? Arithmetic::scaled : Arithmetic::none;
}

// Who divides results.
enum class Means : uint8_t {
  // Each rank its own results: the step that writes one last, or, where the rank reads it after
  // that, a copy onto itself at the end of the program. What is sent was not divided.
  own,
  // In an all-reduce, whoever completes a result divides it, before it is sent to others: the last
  // step to write it, unless that receives elements or copies from the output, which are divided
  // already.
  shared,
  // The same in a reduce, where each rank completes a part of the root's result in scratch: what is
  // sent from scratch as elements is complete. (Partial sums travel unrounded.)
  completed,
};

// scaled: every step that reads an input chunk scales it.
Program with_arithmetic(Arithmetic arithmetic, Means means, Collective collective,
                        const Shape& shape, Program program);

}  // namespace tutti
