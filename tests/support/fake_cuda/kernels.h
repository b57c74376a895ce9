// Kernels of the fake driver. The program that links the driver defines them.
#pragma once

#include <span>

#include "tests/support/host_gpu/grid.h"

std::span<const tutti::host_gpu::NamedKernel> fake_cuda_kernels();
