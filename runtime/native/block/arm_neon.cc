// The kernels for NEON.
#define LUCID_FX_BLOCK_ISA(function) function##_neon
#include "loops.inc"
