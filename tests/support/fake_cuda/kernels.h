// The driver's kernels, defined by the program that links it.
#pragma once

#include <span>

#include "tests/support/host_gpu/grid.h"

std::span<const tutti::host_gpu::NamedKernel> fake_cuda_kernels();
