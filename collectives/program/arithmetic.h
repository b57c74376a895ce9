// Averaging and scaling as part of a program's steps, so that the executor runs exactly what was
// proved. They take no extra step and no extra pass over memory if the step that reads an input or
// completes a result can do them.
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

// Returns the arithmetic that an operator adds to a program.
constexpr Arithmetic arithmetic_of(ReduceOp op) {
  if (op == ReduceOp::avg) return Arithmetic::means;
  return op == ReduceOp::premul_sum ? Arithmetic::scaled : Arithmetic::none;
}

// Selects the rank and the step that divide a result.
enum class Means : uint8_t {
  // Each rank divides its own results: in the last step that writes them or, if a later step reads
  // them, in a copy of the results onto themselves at the end of the program. Messages carry
  // undivided values.
  own,
  // all_reduce: the rank that completes a result divides it in the last step that writes it, before
  // sending it. Steps that receive elements or copy from the output handle values that are already
  // divided.
  shared,
  // reduce: as `shared`, but each rank completes a part of the root's result in scratch. Elements
  // sent from scratch are complete; partial sums travel unrounded.
  completed,
};

// Adds the arithmetic to a program. With Arithmetic::scaled, every step that reads an input chunk
// scales it.
Program with_arithmetic(Arithmetic arithmetic, Means means, Collective collective,
                        const Shape& shape, Program program);

}  // namespace tutti
