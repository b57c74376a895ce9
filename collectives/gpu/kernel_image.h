// The fat binary with the kernels of kernels.h, as the driver loads it. Where the build found no
// CUDA compiler it is something that every driver refuses.
#pragma once

extern "C" const unsigned char tutti_gpu_kernel_image[];
