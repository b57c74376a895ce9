// What nvcc and hipcc want to be told of kernels' source, and other compilers do not: that a
// function runs on the device, and that a loop over an array must be unrolled, so that the array is
// in registers. The same source is compiled for a GPU and, in tests, for the host.
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
