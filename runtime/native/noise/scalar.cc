// The kernel for the baseline of the architecture.
#define LUCID_FX_NOISE_ISA(function) function##_scalar
#include "loops.inc"
