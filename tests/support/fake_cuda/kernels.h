// The kernels that the driver has: defined by whoever links it.
#pragma once

#include <span>

#include "tests/support/host_gpu/grid.h"

std::span<const tutti::host_gpu::NamedKernel> fake_cuda_kernels();
