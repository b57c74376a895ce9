// Marks functions that run in kernels: nvcc and hipcc want to be told, other compilers do not. The
// same source is compiled for a GPU and, in tests, for the host.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define TUTTI_DEVICE __device__ __forceinline__
#else
#define TUTTI_DEVICE inline
#endif
