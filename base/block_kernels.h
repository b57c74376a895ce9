// The kernels of base/reduce.h for elements that are blocks (base/block_format.h): decoded,
// computed in float, and encoded again where the result is elements and not accumulators.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/reduce.h"
#include "base/reduce_op.h"

namespace tutti::block_kernels {

// Null where there is none.
ReduceKernel reduce(DType type, ReduceOp op);
void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats);
void scale(void* dst, const void* src, size_t count, DType type, double factor);

}  // namespace tutti::block_kernels
