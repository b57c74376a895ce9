// What the processor can do, to compare a model's speed with.
#pragma once

#include "base/dtype.h"

namespace tutti::training {

// Floating-point operations per second of one thread in a large matrix product of this type,
// measured in some 100 ms.
double measured_peak(DType type);

}  // namespace tutti::training
