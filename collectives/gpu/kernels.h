// Names of the kernels in the fat binary, one per element type. Each takes one Launch.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/text.h"

namespace tutti::gpu {

inline std::string kernel_name(DType dtype) { return cat("tutti_run_", name(dtype)); }

}  // namespace tutti::gpu
