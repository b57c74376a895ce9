// The kernels of base/reduce.h, as each instruction set offers them.
#pragma once

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti::kernels {

using Reduce = void (*)(void* dst, const void* a, const void* b, size_t count);
using Divide = void (*)(void* data, size_t count, int ranks);

// Null where the operation does not exist for the type. avg is sum.
namespace baseline {
Reduce find_reduce(DType type, ReduceOp op);
Divide find_divide(DType type);
}  // namespace baseline

namespace avx2 {
Reduce find_reduce(DType type, ReduceOp op);
Divide find_divide(DType type);
}  // namespace avx2

namespace avx512 {
Reduce find_reduce(DType type, ReduceOp op);
Divide find_divide(DType type);
}  // namespace avx512

}  // namespace tutti::kernels
