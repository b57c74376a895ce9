// What nccl.h needs of CUDA's header of this name, so that nothing of CUDA has to be installed.
#pragma once

struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;  // NOLINT: C reads it, too
