// Measures the peak rates of processor and memory, with which a model's speed is compared.
#pragma once

#include "base/dtype.h"

namespace tutti::training {

// Returns floating-point operations per second of one thread in a large matrix product of this
// type. Takes the best of repetitions during some 100 ms, by the thread's CPU time, so that other
// processes do not lower the result.
double measured_peak(DType type);

// Returns the bytes per second, read plus written, at which `threads` threads copy 64 MiB of the
// host's memory: the fastest copy of some 100 ms.
double measured_bandwidth(int threads);

}  // namespace tutti::training
