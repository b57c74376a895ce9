// Annotations of kernels' source for nvcc and hipcc: a function that runs on the device, and a loop
// over an array that must be unrolled to keep the array in registers. The same source is compiled
// for a GPU and, in tests, for the host.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define TUTTI_DEVICE __device__ __forceinline__
#define TUTTI_UNROLL _Pragma("unroll")
#if defined(__HIPCC__)
#define TUTTI_GRID_CONSTANT
#else
#define TUTTI_GRID_CONSTANT __grid_constant__
#endif
#else
#define TUTTI_DEVICE inline
#define TUTTI_UNROLL
#endif
