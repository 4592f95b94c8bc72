#include <immintrin.h>

#include "kernel_file.h"
#include "matmul.h"

namespace lucid_fx::matmul {
namespace {

#include "rows.inc"

#include "x86_256.inc"

struct AvxVnni : Registers256 {
  template <int kBits>
  struct Products {
    using Partial = Sums;
    static constexpr size_t kDots = kMaxBlock;
    static Partial begin(Sums sum) { return sum; }
    static Partial add(Partial p, Codes w, Codes a) { return _mm256_dpbusd_avx_epi32(p, w, a); }
    static Sums end(Sums, Partial p) { return p; }
  };
};

using V = AvxVnni;
#include "tiles.inc"

}  // namespace

const Kernels kernels_avxvnni = LUCID_FX_MATMUL_KERNEL_SET("avxvnni", kAvx2 | kAvxVnni);

}  // namespace lucid_fx::matmul
