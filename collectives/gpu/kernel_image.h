// The fat binary with the kernels of kernels.h, as the driver loads it. If the build found no CUDA
// compiler, it has contents that every driver rejects.
#pragma once

extern "C" const unsigned char tutti_gpu_kernel_image[];
