// What the processor can do, to compare a model's speed with.
#pragma once

#include "base/dtype.h"

namespace tutti::training {

// Floating-point operations per second of one thread in a large matrix product of this type: the
// best of some 100 ms, by the thread's processor time, so that other programs do not make it less.
double measured_peak(DType type);

}  // namespace tutti::training
