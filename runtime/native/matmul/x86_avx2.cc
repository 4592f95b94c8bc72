// vpmaddubsw saturates its 16-bit sums in general, but not here: two products of a 4-bit code and
// an 8-bit one are at most 2 * 15 * 128 = 3840, and eight of those, 30720, still fit. Codes of 8
// bits are taken as two of 4.
#include <immintrin.h>

#include "kernel_file.h"
#include "matmul.h"

namespace lucid_fx::matmul {
namespace {

#include "rows.inc"

#include "x86_256.inc"

struct Avx2 : Registers256 {
  static Sums widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

  template <int kBits>
  struct Products {
    using Partial = __m256i;  // int16
    static constexpr size_t kDots = 8;
    static Partial begin(Sums) { return _mm256_setzero_si256(); }
    static Partial add(Partial p, Codes w, Codes a) {
      return _mm256_add_epi16(p, _mm256_maddubs_epi16(w, a));
    }
    static Sums end(Sums sum, Partial p) { return _mm256_add_epi32(sum, widen(p)); }
  };
};

template <>
struct Avx2::Products<8> {
  struct Partial {
    __m256i low, high;  // int16
  };
  static constexpr size_t kDots = 8;
  static Partial begin(Sums) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Partial add(Partial p, Codes w, Codes a) {
    return {_mm256_add_epi16(p.low, _mm256_maddubs_epi16(field<4>(w, 0), a)),
            _mm256_add_epi16(p.high, _mm256_maddubs_epi16(field<4>(w, 1), a))};
  }
  static Sums end(Sums sum, Partial p) {
    const Sums high = _mm256_slli_epi32(widen(p.high), 4);
    return _mm256_add_epi32(sum, _mm256_add_epi32(widen(p.low), high));
  }
};

using V = Avx2;
#include "tiles.inc"

}  // namespace

const Kernels kernels_avx2 = LUCID_FX_MATMUL_KERNEL_SET("avx2", kAvx2);

}  // namespace lucid_fx::matmul
