#pragma once

// An unrolled loop, so that arrays over its index become registers.
#if defined(__clang__)
#define LUCID_FX_EACH(i, count) _Pragma("unroll") for (int i = 0; i < (count); ++i)
#else
#define LUCID_FX_EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); ++i)
#endif
