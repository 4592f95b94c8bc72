// The kernel for NEON.
#define LUCID_FX_NOISE_ISA(function) function##_neon
#include "loops.inc"
