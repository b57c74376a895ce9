#define TUTTI_INSTRUCTION_SET baseline
#include "base/kernels/kernels.inc"
