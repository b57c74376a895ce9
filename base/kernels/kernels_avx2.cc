#define TUTTI_INSTRUCTION_SET avx2
#include "base/kernels/kernels.inc"
