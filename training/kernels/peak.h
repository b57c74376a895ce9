// Measured peak rates of processor and memory, the reference for a model's speed.
#pragma once

#include "base/dtype.h"

namespace tutti::training {

// Floating-point operations per second of one thread in a large matrix product of this type: the
// best of some 100 ms, by the thread's CPU time, so that other processes do not lower it.
double measured_peak(DType type);

// Bytes per second, read plus written, of `threads` threads that copy 64 MiB of the host's memory:
// the fastest copy of some 100 ms.
double measured_bandwidth(int threads);

}  // namespace tutti::training
