// The kernels of base/reduce.h for block elements (base/block_format.h): blocks are decoded,
// computed in float, and encoded again if the result is an array of elements, not of accumulators.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/reduce.h"
#include "base/reduce_op.h"

namespace tutti::block_kernels {

// Returns the kernel for `type` and `op`, or null if there is none.
ReduceKernel reduce(DType type, ReduceOp op);
void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats);
void scale(void* dst, const void* src, size_t count, DType type, double factor);

}  // namespace tutti::block_kernels
