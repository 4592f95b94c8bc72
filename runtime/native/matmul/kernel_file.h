// Macros of the kernel files.
#pragma once

#include "../isa.h"

// An unrolled loop, so that arrays over its index become registers.
#if defined(__clang__)
#define LUCID_FX_EACH(i, count) _Pragma("unroll") for (int i = 0; i < (count); ++i)
#else
#define LUCID_FX_EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); ++i)
#endif

// The functions of rows.inc and tiles.inc, for the V of the file.
#define LUCID_FX_MATMUL_KERNEL_SET(name, needs)                                            \
  {name,      needs,  V::kRows, quantize_rows, tile<V, QuantizedRows>, tile<V, FloatRows>, \
   from_half, to_half}
