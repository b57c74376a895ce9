// The kernels by name: one for each element type, as the fat binary has them. Each takes one
// Launch.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/text.h"

namespace tutti::gpu {

inline std::string kernel_name(DType dtype) { return cat("tutti_run_", name(dtype)); }

}  // namespace tutti::gpu
