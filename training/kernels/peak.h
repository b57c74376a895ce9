// Measured peaks of the processor and its memory, to compare a model's speed with.
#pragma once

#include "base/dtype.h"

namespace tutti::training {

// Floating-point operations per second of one thread in a large matrix product of this type: the
// best of some 100 ms, by the thread's processor time, so that other programs do not make it less.
double measured_peak(DType type);

// Bytes per second that so many threads read and write together while they copy 64 MiB of the
// host's memory: the fastest copy of some 100 ms.
double measured_bandwidth(int threads);

}  // namespace tutti::training
