// The kernel table behind base/reduce.h, one per instruction set.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/reduce.h"
#include "base/reduce_op.h"

namespace tutti::kernels {

using Reduce = ReduceKernel;
using MeanKernel = void (*)(void* dst, const void* a, const void* b, size_t count, int ranks,
                            Formats formats);
using Convert = void (*)(void* to, const void* from, size_t count);
using Scale = void (*)(void* dst, const void* src, size_t count, double factor);

// The kernels of one instruction set. An entry is null if the operation does not exist for the
// type. avg and premul_sum use the kernel of sum.
struct Kernels {
  Reduce (*reduce)(DType type, ReduceOp op);
  MeanKernel (*mean)(DType type);
  Convert (*widen)(DType type);
  Convert (*narrow)(DType type);
  Scale (*scale)(DType type);
};

// Marks padding in a `sign` block: a NaN that no arithmetic produces.
inline constexpr uint32_t kPaddingBits = 0x7fc0b10cU;

namespace baseline {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

}  // namespace tutti::kernels
