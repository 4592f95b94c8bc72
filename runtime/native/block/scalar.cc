// The kernels for the baseline of the architecture.
#define LUCID_FX_BLOCK_ISA(function) function##_scalar
#include "loops.inc"
