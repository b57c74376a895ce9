// What a call does to the numbers besides combining them, as steps of its program: so an executor
// adds nothing of its own, and what is proved is what runs.
#pragma once

#include <cstdint>

#include "collectives/program/program.h"

namespace tutti {

enum class Arithmetic : uint8_t {
  none,
  means,   // results are divided by the number of ranks that they combine (ReduceOp::avg)
  scaled,  // inputs are multiplied by this rank's factor (ReduceOp::premul_sum)
};

// means:   at the end of the program, a step for each part of this rank's result that divides it in
//          place. So parts that are done are divided while others are under way, and what is sent
//          is what was before.
// scaled:  at its beginning, a step for each part of this rank's input that puts the product into
//          scratch, where the other steps read it.
Program with_arithmetic(Arithmetic arithmetic, Collective collective, const Shape& shape,
                        Program program);

}  // namespace tutti
