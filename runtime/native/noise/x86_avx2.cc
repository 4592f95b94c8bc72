// The kernel for AVX2.
#define LUCID_FX_NOISE_ISA(function) function##_avx2
#include "loops.inc"
