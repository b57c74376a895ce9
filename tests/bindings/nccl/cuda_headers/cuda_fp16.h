// Declarations that nccl.h needs from the CUDA header of this name, so that CUDA need not be
// installed.
#pragma once

struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;  // NOLINT: C reads it, too
