// Macros of the kernel files.
#pragma once

#include "../isa.h"
#include "../unrolled.h"

// The functions of rows.inc and tiles.inc, for the V of the file.
#define LUCID_FX_MATMUL_KERNEL_SET(name, needs) \
  {name,                                        \
   needs,                                       \
   V::kRows,                                    \
   quantize_rows,                               \
   tile<V, QuantizedRows>,                      \
   row_kernel<V>(),                             \
   tile<V, FloatRows>,                          \
   from_half,                                   \
   to_half}
