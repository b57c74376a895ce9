#define TUTTI_INSTRUCTION_SET avx512
#include "base/kernels/kernels.inc"
