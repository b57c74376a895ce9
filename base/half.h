// Conversions between float and the 16- and 8-bit floating-point types, one value at a time.
//
// They serve tests, printing and set-up code; the reduction kernels convert whole blocks by the
// same rules (base/kernels/convert.h):
//   to_float    exact for every value; a NaN stays a NaN
//   from_float  rounds to nearest, ties to even, subnormals included. Overflow gives infinity or,
//               in f8e4m3, which has no infinity, NaN (OCP's non-saturating mode). Every NaN
//               becomes the type's positive quiet NaN: 0x7e00, 0x7fc0 (bf16), 0x7f (f8e4m3),
//               0x7e (f8e5m2).
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tutti {

// Converts one value between float and `type`, which is f16, bf16, f8e4m3 or f8e5m2 (otherwise
// Error(invalid_argument) is thrown). `bits` is the value's encoding in the low bits.
float to_float(DType type, uint16_t bits);
uint16_t from_float(DType type, float value);

}  // namespace tutti
