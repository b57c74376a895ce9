// The formats to which dense layers may round the operands of their products
// (kernels/quantized_gemm.h).
#pragma once

#include <cstdint>

namespace tutti::training {

enum class GemmFormat : uint8_t { none, tf32, fp8, mxfp8, nvfp4 };

}  // namespace tutti::training
